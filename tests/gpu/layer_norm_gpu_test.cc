// LayerNorm on the device against double arithmetic: rows of one run and of many, in place in the
// columns of a wider matrix. Bits must not depend on the batch, repetition or dependent launch.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

constexpr float kEps = 1e-5f;

struct Case {
  int64_t tokens, width;
  int32_t groups;
  DType dtype, weight;
  bool shared_weight;  // one run's weights serve every run
  bool with_bias;
  double mean = 1.5;  // of the elements, whose standard deviation is 3
};

// A norm of columns [16, 16 + width) of a matrix, into its own place or another matrix.
class LayerNormCase {
 public:
  explicit LayerNormCase(const Case& c)
      : c_(c),
        run_(c.width / c.groups),
        weights_(c.shared_weight ? run_ : c.width),
        random_(static_cast<uint64_t>(c.tokens * 100000 + c.width + c.groups)),
        x_(Array::Normal(random_, c.dtype, {c.tokens, c.width + 2 * kBeside}, 3.0)),
        weight_(Array::Normal(random_, c.weight, {weights_})),
        bias_(Array::Normal(random_, c.weight, {weights_})),
        device_x_(c.dtype, c.tokens, c.width + 2 * kBeside, 8),
        device_weight_(c.weight, 1, weights_, weight_),
        device_bias_(c.weight, 1, weights_, bias_),
        out_(c.dtype, c.tokens, c.width, 16) {
    for (int64_t i = 0; i < x_.size(); ++i) x_.Set(i, static_cast<float>(x_[i] + c.mean));
  }

  void Run(const cuda::Device& device, bool in_place = false) {
    device_x_.Set(x_);
    out_.Poison();
    cuda::LayerNorm(Params(0, c_.tokens, in_place), device);
  }
  void RunOneByOne() {
    device_x_.Set(x_);
    out_.Poison();
    for (int64_t t = 0; t < c_.tokens; ++t) cuda::LayerNorm(Params(t, 1, false), TestDevice());
  }
  std::string Bytes() const {
    Array out = out_.Get();
    return std::string(static_cast<char*>(out.data()), out.byte_size());
  }

  void Check() {
    Array out = out_.Get();
    for (int64_t t = 0; t < c_.tokens; ++t) {
      for (int64_t g = 0; g < c_.groups; ++g) {
        CheckRun(t, g, [&](int64_t i) { return out[t * c_.width + g * run_ + i]; });
      }
    }
  }
  void CheckInPlace() {
    Array all = device_x_.Get();
    const int64_t stride = c_.width + 2 * kBeside;
    for (int64_t t = 0; t < c_.tokens; ++t) {
      for (int64_t g = 0; g < c_.groups; ++g) {
        CheckRun(t, g, [&](int64_t i) { return all[t * stride + kBeside + g * run_ + i]; });
      }
      for (int64_t i = 0; i < kBeside; ++i) {
        ASSERT_EQ(all[t * stride + i], x_[t * stride + i]);
        ASSERT_EQ(all[(t + 1) * stride - 1 - i], x_[(t + 1) * stride - 1 - i]);
      }
    }
  }

 private:
  static constexpr int64_t kBeside = 16;

  LayerNormParams Params(int64_t begin, int64_t count, bool in_place) const {
    const auto vector = [&](const DeviceTensor& v) {
      return TensorView(v.view().data, c_.weight, {weights_});
    };
    const TensorView x = device_x_.view().Rows(begin, count).Columns(kBeside, c_.width);
    return {.x = x,
            .groups = c_.groups,
            .weight = vector(device_weight_),
            .bias = c_.with_bias ? vector(device_bias_) : TensorView(),
            .eps = kEps,
            .out = in_place ? x : out_.view().Rows(begin, count)};
  }
  template <typename Get>
  void CheckRun(int64_t t, int64_t g, Get get) {
    const int64_t begin = t * (c_.width + 2 * kBeside) + kBeside + g * run_;
    double mean = 0, variance = 0, largest = 0;
    for (int64_t i = 0; i < run_; ++i) mean += x_[begin + i] / static_cast<double>(run_);
    for (int64_t i = 0; i < run_; ++i) {
      variance += std::pow(x_[begin + i] - mean, 2) / static_cast<double>(run_);
      largest = std::max(largest, std::abs(x_[begin + i]));
    }
    const double factor = 1 / std::sqrt(variance + kEps);
    // Sums of up to 16 elements a thread, 5 steps of lanes and 5 of warps; the mean's rounding is
    // absolute, of the size of the largest element.
    const double error = 2 * (16 + 10 + 8) * kRounding * (largest * factor + 1);
    for (int64_t i = 0; i < run_; ++i) {
      const int64_t w = c_.shared_weight ? i : g * run_ + i;
      const double bias = c_.with_bias ? bias_[w] : 0;
      const double exact = (x_[begin + i] - mean) * factor * weight_[w] + bias;
      ASSERT_LE(std::abs(get(i) - exact), StoreError(c_.dtype) * std::abs(exact) +
                                              error * (std::abs(weight_[w]) + std::abs(bias)) +
                                              1e-7)
          << "token " << t << " run " << g << " element " << i;
    }
  }

  const Case c_;
  const int64_t run_, weights_;
  Random random_;
  Array x_, weight_, bias_;
  DeviceTensor device_x_, device_weight_, device_bias_, out_;
};

void CheckBothPlaces(const Case& c) {
  SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.width) + " in " +
               std::to_string(c.groups) + " runs, " + Name(c.dtype) + " and " + Name(c.weight));
  LayerNormCase norm(c);
  norm.Run(TestDevice());
  norm.Check();
  if (testing::Test::HasFatalFailure()) return;
  norm.Run(TestDevice(), true);
  norm.CheckInPlace();
}

TEST(LayerNormGpuTest, MatchesDoubleArithmeticOfWholeRows) {
  for (int64_t width : {8, 72, 256, 264, 2048, 5120, 8192, 8200, 16384}) {
    for (int64_t tokens : {1, 9}) {
      for (DType dtype : kFloatTypes) {
        for (DType weight : {dtype, DType::kF32}) {
          for (bool with_bias : {false, true}) {
            CheckBothPlaces({tokens, width, 1, dtype, weight, false, with_bias});
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(LayerNormGpuTest, MatchesDoubleArithmeticOfHeads) {
  for (int64_t head : {16, 64, 80, 96, 128, 160, 256, 320}) {
    for (int32_t heads : {1, 3, 8}) {
      for (int64_t tokens : {1, 7}) {
        for (DType dtype : kFloatTypes) {
          for (bool shared : {false, true}) {
            CheckBothPlaces({tokens, head * heads, heads, dtype, DType::kF32, shared, shared});
            CheckBothPlaces({tokens, head * heads, heads, dtype, dtype, shared, !shared});
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// The variance must not come from the difference of two large sums.
TEST(LayerNormGpuTest, KeepsItsDigitsFarFromZero) {
  for (int32_t groups : {1, 32}) {
    CheckBothPlaces({9, 4096, groups, DType::kF32, DType::kF32, false, true, 1000.0});
  }
}

TEST(LayerNormGpuTest, BitsDependNeitherOnTheBatchNorOnRepetition) {
  const Case cases[] = {{300, 5120, 1, DType::kBF16, DType::kF32, false, true},
                        {300, 32 * 160, 32, DType::kBF16, DType::kF32, false, false},
                        {300, 16384, 1, DType::kF16, DType::kF16, false, true}};
  for (const Case& c : cases) {
    LayerNormCase norm(c);
    ExpectSameBits([&](const cuda::Device& device) { norm.Run(device); },
                   [&] { return norm.Bytes(); });
    const std::string together = norm.Bytes();
    norm.RunOneByOne();
    EXPECT_TRUE(norm.Bytes() == together);
  }
}

}  // namespace
}  // namespace quire::gpu
