// MatMul of 8-bit rows with scales on the device: close to float64, and the same bits in every
// batch of few tokens.
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/skinny_matmul.h"
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

struct Case {
  int64_t tokens, n, k;
  DType out = DType::kBF16;
  bool bias = false;
};

// A scaled matrix on the device with the host's copy.
class EightBit {
 public:
  EightBit(Random& random, int64_t rows, int64_t columns, double amplitude)
      : elements_(Array::Normal(random, DType::kE4M3, {rows, columns}, amplitude)),
        device_(DType::kE4M3, rows, columns, elements_, 16),
        scales_(Scales(random, rows)),
        device_scales_(scales_),
        columns_(columns) {}

  TensorView view() const {
    TensorView v = device_.view();
    v.scales = device_scales_.data();
    return v;
  }
  double At(int64_t row, int64_t column) const {
    return static_cast<double>(scales_[static_cast<size_t>(row)]) *
           elements_[row * columns_ + column];
  }

 private:
  static std::vector<float> Scales(Random& random, int64_t rows) {
    std::vector<float> scales(static_cast<size_t>(rows));
    for (float& s : scales) s = static_cast<float>(0.001 + random.Uniform() * 0.01);
    return scales;
  }

  Array elements_;
  const DeviceTensor device_;
  const std::vector<float> scales_;
  const DeviceArray<float> device_scales_;
  const int64_t columns_;
};

cuda::MatMul& Op() {
  static DeviceArray<char>* const workspace = new DeviceArray<char>(cuda::MatMul::WorkspaceBytes());
  static auto* const op = new cuda::MatMul(TestDevice(), workspace->data(), "");
  return *op;
}

class EightBitMatMulGpuTest : public ::testing::TestWithParam<Case> {};

TEST_P(EightBitMatMulGpuTest, MatchesDoubleArithmetic) {
  const Case& c = GetParam();
  Random random(static_cast<uint64_t>(c.tokens * 31 + c.n + c.k));
  const EightBit x(random, c.tokens, c.k, 60), w(random, c.n, c.k, 60);
  Array bias = Array::Normal(random, c.out, {c.n}, 3.0);
  const DeviceTensor device_bias(c.out, 1, c.n, bias);
  TensorView bias_view;
  if (c.bias) bias_view = TensorView(device_bias.view().data, c.out, {c.n});
  DeviceTensor out(c.out, c.tokens, c.n, 8);
  Op().Run({.x = x.view(), .w = w.view(), .bias = bias_view, .out = out.view()});
  const Array got = out.Get();
  for (int sample = 0; sample < 3000; ++sample) {
    const int64_t t = random.Below(c.tokens), r = random.Below(c.n);
    double sum = c.bias ? bias[r] : 0, size = std::abs(sum);
    for (int64_t i = 0; i < c.k; ++i) {
      const double product = x.At(t, i) * w.At(r, i);
      sum += product;
      size += std::abs(product);
    }
    // Few tokens are summed in floats; the library's matrix units keep 13 bits of a partial sum.
    const double of_size = c.tokens <= cuda::kMaxSkinnyTokens ? 1e-6 : 0x1p-12;
    ASSERT_LE(std::abs(got[t * c.n + r] - sum), StoreError(c.out) * std::abs(sum) + of_size * size)
        << "token " << t << " row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EightBitMatMulGpuTest,
    ::testing::Values(Case{1, 16, 16}, Case{1, 24, 48, DType::kF32}, Case{1, 4096, 4096},
                      Case{3, 1000, 272, DType::kBF16, true}, Case{8, 6144, 4096},
                      Case{9, 4096, 14336, DType::kF16}, Case{16, 28672, 4096},
                      Case{17, 4096, 4096}, Case{33, 512, 2048, DType::kBF16, true},
                      Case{64, 6144, 4096}, Case{200, 4096, 14336}, Case{1024, 2048, 1024}));

TEST(EightBitMatMulBitsTest, FewTokensDoNotChangeEachOthersBits) {
  constexpr int64_t kTokens = 16, kN = 4096, kK = 1024;
  Random random(5);
  const EightBit x(random, kTokens, kK, 60), w(random, kN, kK, 60);
  DeviceTensor all(DType::kBF16, kTokens, kN), alone(DType::kBF16, kTokens, kN);
  ExpectSameBits(
      [&](const cuda::Device&) {
        all.Poison();
        Op().Run({.x = x.view(), .w = w.view(), .bias = {}, .out = all.view()});
      },
      [&] {
        Array got = all.Get();
        return std::string(static_cast<char*>(got.data()), got.byte_size());
      });
  for (int64_t t = 0; t < kTokens; ++t) {
    Op().Run({.x = x.view().Rows(t, 1), .w = w.view(), .bias = {}, .out = alone.view().Rows(t, 1)});
  }
  EXPECT_TRUE(alone.Get().SameBits(all.Get()));
}

}  // namespace
}  // namespace quire::gpu
