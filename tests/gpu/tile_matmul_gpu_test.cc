// TileMatMul by every cut: close to float64, nothing read or written beyond the tensors, and the
// same bits every time.
//
// Covers kernels/cuda/device/tensor_map.cc
#include "kernels/cuda/matmul/tile_matmul.h"

#include "kernels/ceil_div.h"
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

enum class Scales { kNone, kRows, kBlocks };

struct Case {
  int64_t tokens, n, k;
  DType in = DType::kBF16, out = DType::kBF16;
  Scales scales = Scales::kNone;
  bool bias = false;
};

constexpr int32_t kBlock = 128;

// A matrix on the device with its scales, and the host's copy of both.
class Matrix {
 public:
  Matrix(Random& random, int64_t rows, int64_t columns, const Case& c, int32_t scale_rows)
      : elements_(Array::Normal(random, c.in, {rows, columns}, IsEightBit(c.in) ? 60 : 1)),
        device_(c.in, rows, columns, elements_, 16),
        scale_rows_(c.scales == Scales::kBlocks ? scale_rows : 1),
        scale_columns_(c.scales == Scales::kBlocks ? kBlock : 0),
        scale_stride_(RoundUp<int64_t>(CeilDiv<int64_t>(rows, scale_rows_), 4)),
        columns_(columns) {
    if (c.scales == Scales::kNone) return;
    const int64_t blocks = scale_columns_ > 0 ? CeilDiv<int64_t>(columns, kBlock) : 1;
    scales_.resize(static_cast<size_t>(scale_stride_ * blocks));
    for (float& s : scales_) s = static_cast<float>(0.001 + random.Uniform() * 0.01);
    device_scales_ = std::make_unique<DeviceArray<float>>(scales_);
  }

  TensorView view() const {
    TensorView v = device_.view();
    if (scales_.empty()) return v;
    v.scales = device_scales_->data();
    v.scale_rows = scale_rows_;
    v.scale_columns = scale_columns_;
    v.scale_stride = scale_stride_;
    return v;
  }
  double At(int64_t row, int64_t column) const {
    const double element = elements_[row * columns_ + column];
    if (scales_.empty()) return element;
    const int64_t block = scale_columns_ > 0 ? column / scale_columns_ : 0;
    return element * static_cast<double>(
                         scales_[static_cast<size_t>(block * scale_stride_ + row / scale_rows_)]);
  }

 private:
  Array elements_;
  const DeviceTensor device_;
  const int32_t scale_rows_, scale_columns_;
  const int64_t scale_stride_, columns_;
  std::vector<float> scales_;
  std::unique_ptr<DeviceArray<float>> device_scales_;
};

const cuda::TileClusters& Clusters() {
  static const cuda::TileClusters clusters = cuda::PrepareTileMatMul(TestDevice());
  return clusters;
}

std::vector<cuda::TileCut> Cuts(const Case& c) {
  std::vector<cuda::TileCut> cuts;
  const int64_t chunks =
      CeilDiv<int64_t>(c.k * static_cast<int64_t>(SizeOf(c.in)), cuda::kTileChunkBytes);
  for (int rows : {16, 96, 112, 128}) {
    for (int tokens : cuda::kTileTokens) {
      for (int split = 1; split <= std::min<int64_t>(cuda::kMaxTileSplit, chunks); ++split) {
        cuts.push_back({rows, tokens, split});
      }
    }
  }
  return cuts;
}

class TileMatMulGpuTest : public ::testing::TestWithParam<Case> {
 protected:
  const Case c_ = GetParam();
  Random random_{static_cast<uint64_t>(c_.tokens * 31 + c_.n + c_.k)};
  const Matrix x_{random_, c_.tokens, c_.k, c_, 1}, w_{random_, c_.n, c_.k, c_, kBlock};
  Array bias_ = Array::Normal(random_, c_.out, {c_.n}, 3.0);
  const DeviceTensor device_bias_{c_.out, 1, c_.n, bias_};
  DeviceTensor out_{c_.out, c_.tokens, c_.n, 8};

  MatMulParams Params() const {
    TensorView bias;
    if (c_.bias) bias = TensorView(device_bias_.view().data, c_.out, {c_.n});
    return {.x = x_.view(), .w = w_.view(), .bias = bias, .out = out_.view()};
  }
};

TEST_P(TileMatMulGpuTest, MatchesDoubleArithmetic) {
  struct Sample {
    int64_t token, row;
    double sum, size;
  };
  std::vector<Sample> samples;
  for (int i = 0; i < 400; ++i) {
    Sample& s = samples.emplace_back();
    // The last token and row, too.
    s = {i == 0 ? c_.tokens - 1 : random_.Below(c_.tokens), i <= 1 ? c_.n - 1 : random_.Below(c_.n),
         0, 0};
    s.sum = c_.bias ? bias_[s.row] : 0;
    s.size = std::abs(s.sum);
    for (int64_t k = 0; k < c_.k; ++k) {
      const double product = x_.At(s.token, k) * w_.At(s.row, k);
      s.sum += product;
      s.size += std::abs(product);
    }
  }
  // Matrix units add 8-bit products with 13 bits of fraction.
  const double of_size = c_.in == DType::kE4M3 ? 0x1p-13 : 2e-6;
  const MatMulParams p = Params();
  ASSERT_TRUE(cuda::FitsTileMatMul(p));
  for (const cuda::TileCut& cut : Cuts(c_)) {
    out_.Poison();
    cuda::TileMatMul(p, cut, Clusters(), TestDevice());
    const Array got = out_.Get();
    for (const Sample& s : samples) {
      ASSERT_LE(std::abs(got[s.token * c_.n + s.row] - s.sum),
                StoreError(c_.out) * std::abs(s.sum) + of_size * s.size)
          << "cut " << cut.rows << "/" << cut.tokens << "/" << cut.split << " token " << s.token
          << " row " << s.row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TileMatMulGpuTest,
    ::testing::Values(Case{17, 4096, 4096},
                      Case{64, 1000, 264, DType::kF16, DType::kF16, Scales::kNone, true},
                      Case{200, 512, 1024, DType::kBF16, DType::kF32},
                      Case{1, 24, 8, DType::kF16, DType::kF32},
                      Case{33, 4096, 1024, DType::kE4M3, DType::kBF16, Scales::kRows},
                      Case{300, 1000, 272, DType::kE4M3, DType::kF16, Scales::kRows, true},
                      Case{5, 24, 16, DType::kE4M3, DType::kF32, Scales::kRows},
                      Case{64, 4096, 1024, DType::kE4M3, DType::kBF16, Scales::kBlocks},
                      Case{301, 1000, 400, DType::kE4M3, DType::kF16, Scales::kBlocks, true},
                      Case{3, 130, 16, DType::kE4M3, DType::kF32, Scales::kBlocks},
                      Case{37, 131, 400, DType::kE4M3, DType::kBF16, Scales::kRows, true},
                      Case{33, 4096, 1024, DType::kI8, DType::kBF16, Scales::kRows},
                      Case{300, 1000, 272, DType::kI8, DType::kF16, Scales::kRows, true},
                      Case{5, 24, 16, DType::kI8, DType::kF32, Scales::kRows},
                      Case{37, 131, 14336, DType::kI8, DType::kF32, Scales::kRows, true}));

class TileMatMulBitsTest : public TileMatMulGpuTest {};

TEST_P(TileMatMulBitsTest, AreTheSameEveryTime) {
  for (const cuda::TileCut& cut : {cuda::TileCut{112, 64, 1}, {96, 64, 2}, {112, 256, 3}}) {
    ExpectSameBits(
        [&](const cuda::Device& device) {
          out_.Poison();
          cuda::TileMatMul(Params(), cut, Clusters(), device);
        },
        [&] {
          Array got = out_.Get();
          return std::string(static_cast<char*>(got.data()), got.byte_size());
        });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, TileMatMulBitsTest,
    ::testing::Values(Case{100, 6144, 2048},
                      Case{100, 6144, 2048, DType::kE4M3, DType::kBF16, Scales::kRows},
                      Case{100, 6144, 2048, DType::kE4M3, DType::kBF16, Scales::kBlocks},
                      Case{100, 6144, 2048, DType::kI8, DType::kBF16, Scales::kRows}));

// Sums of integers are exact, so every cut gives the same bits.
TEST(TileMatMulIntegersTest, EveryCutGivesTheSameBits) {
  const Case c{100, 1000, 4096, DType::kI8, DType::kF32, Scales::kRows, true};
  Random random(3);
  const Matrix x(random, c.tokens, c.k, c, 1), w(random, c.n, c.k, c, kBlock);
  DeviceTensor out(c.out, c.tokens, c.n);
  const MatMulParams p{.x = x.view(), .w = w.view(), .bias = {}, .out = out.view()};
  cuda::TileMatMul(p, {128, 128, 1}, Clusters(), TestDevice());
  const Array first = out.Get();
  for (const cuda::TileCut& cut : Cuts(c)) {
    out.Poison();
    cuda::TileMatMul(p, cut, Clusters(), TestDevice());
    ASSERT_TRUE(out.Get().SameBits(first)) << cut.rows << "/" << cut.tokens << "/" << cut.split;
  }
}

}  // namespace
}  // namespace quire::gpu
