// MatMul of 8-bit elements with scales on the device: close to float64, and the same bits in every
// batch of few tokens, or of any number where blocks have scales or elements are integers;
// elsewhere again in the same batch.
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/skinny_matmul.h"
#include "kernels/row_scale.h"
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

struct Case {
  int64_t tokens, n, k;
  DType out = DType::kBF16;
  bool bias = false;
  int32_t scale_rows = 0;  // of w, that share a scale in a block; 0: rows have scales
  DType in = DType::kE4M3;
};

// The scales of a matrix: of blocks of `rows` rows, or of rows if that is 0.
TensorView ScalesOf(int64_t height, int64_t width, int32_t rows) {
  TensorView v(nullptr, DType::kE4M3, {height, width});  // of any 8-bit type
  if (rows == 0) return v;
  v.scale_rows = rows;
  v.scale_columns = kScaleRun;
  v.scale_stride = CeilDiv<int64_t>(height, rows) + 5;
  return v;
}

// A scaled matrix on the device with the host's copy. Row 0 is zeros and row 1 tiny.
class EightBit {
 public:
  EightBit(Random& random, int64_t rows, int64_t columns, int32_t scale_rows = 0,
           DType dtype = DType::kE4M3)
      : elements_(Elements(random, dtype, rows, columns)),
        device_(dtype, rows, columns, elements_, 16),
        shape_(ScalesOf(rows, columns, scale_rows)),
        scales_(Scales(random, shape_)),
        device_scales_(scales_) {}

  TensorView view() const {
    TensorView v = shape_;
    v.data = device_.view().data;
    v.dtype = device_.view().dtype;
    v.row_stride = device_.view().row_stride;
    v.scales = device_scales_.data();
    return v;
  }
  double At(int64_t row, int64_t column) const {
    return static_cast<double>(scales_[static_cast<size_t>(shape_.ScaleIndex(row, column))]) *
           elements_[row * shape_.dim[1] + column];
  }

 private:
  static Array Elements(Random& random, DType dtype, int64_t rows, int64_t columns) {
    Array elements = Array::Normal(random, dtype, {rows, columns}, 60);
    for (int64_t i = 0; i < columns && rows > 1; ++i) {
      elements.Set(i, 0.0f);
      elements.Set(columns + i, static_cast<float>(random.Normal() * 0x1p-8));
    }
    return elements;
  }
  // Behind the scales of a column of blocks lie NaNs.
  static std::vector<float> Scales(Random& random, const TensorView& shape) {
    const int64_t last = shape.ScaleIndex(shape.dim[0] - 1, shape.dim[1] - 1);
    std::vector<float> scales(static_cast<size_t>(last) + 1, NAN);
    const int64_t columns = shape.scale_columns == 0 ? shape.dim[1] : shape.scale_columns;
    for (int64_t c = 0; c < shape.dim[1]; c += columns) {
      for (int64_t r = 0; r < shape.dim[0]; r += shape.scale_rows) {
        scales[static_cast<size_t>(shape.ScaleIndex(r, c))] =
            static_cast<float>(0.001 + random.Uniform() * 0.01);
      }
    }
    return scales;
  }

  Array elements_;
  const DeviceTensor device_;
  const TensorView shape_;
  const std::vector<float> scales_;
  const DeviceArray<float> device_scales_;
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
  const EightBit x(random, c.tokens, c.k, c.scale_rows == 0 ? 0 : 1, c.in);
  const EightBit w(random, c.n, c.k, c.scale_rows, c.in);
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
    // Few tokens and blocks are summed in floats; the library's matrix units keep 13 bits of a
    // partial sum.
    const bool in_floats =
        c.tokens <= cuda::kMaxSkinnyTokens || c.scale_rows != 0 || c.in == DType::kI8;
    const double of_size = in_floats ? 1e-6 : 0x1p-12;
    ASSERT_LE(std::abs(got[t * c.n + r] - sum), StoreError(c.out) * std::abs(sum) + of_size * size)
        << "token " << t << " row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EightBitMatMulGpuTest,
                         ::testing::Values(Case{1, 16, 16}, Case{1, 24, 48, DType::kF32},
                                           Case{1, 4096, 4096},
                                           Case{3, 1000, 272, DType::kBF16, true},
                                           Case{8, 6144, 4096}, Case{9, 4096, 14336, DType::kF16},
                                           Case{16, 28672, 4096}, Case{17, 4096, 4096},
                                           Case{33, 512, 2048, DType::kBF16, true},
                                           Case{64, 6144, 4096}, Case{64, 1024, 8192},
                                           Case{200, 4096, 14336}, Case{1024, 2048, 1024}));

// Blocks whose last column and row are ragged, of 128 rows and of fewer, and more than 16 tokens.
INSTANTIATE_TEST_SUITE_P(Blocks, EightBitMatMulGpuTest,
                         ::testing::Values(Case{1, 1, 16, DType::kF32, false, 128},
                                           Case{1, 128, 128, DType::kF32, false, 128},
                                           Case{1, 4096, 4096, DType::kBF16, false, 128},
                                           Case{2, 333, 144, DType::kF16, true, 128},
                                           Case{5, 1001, 1152, DType::kBF16, true, 16},
                                           Case{8, 6144, 4096, DType::kBF16, false, 128},
                                           Case{9, 4096, 12288, DType::kF32, false, 64},
                                           Case{13, 199, 400, DType::kBF16, false, 1},
                                           Case{16, 24576, 4096, DType::kBF16, false, 128},
                                           Case{17, 513, 272, DType::kBF16, true, 128},
                                           Case{64, 1024, 4096, DType::kF16, false, 32}));

INSTANTIATE_TEST_SUITE_P(Integers, EightBitMatMulGpuTest,
                         ::testing::Values(Case{1, 1, 16, DType::kF32, false, 0, DType::kI8},
                                           Case{1, 4096, 4096, DType::kBF16, false, 0, DType::kI8},
                                           Case{3, 1001, 272, DType::kBF16, true, 0, DType::kI8},
                                           Case{9, 4096, 14336, DType::kF32, false, 0, DType::kI8},
                                           Case{16, 6144, 4096, DType::kF16, true, 0, DType::kI8},
                                           Case{45, 513, 1040, DType::kBF16, true, 0, DType::kI8},
                                           Case{64, 6144, 4096, DType::kBF16, false, 0, DType::kI8},
                                           Case{200, 4096, 14336, DType::kF16, true, 0, DType::kI8},
                                           Case{2000, 1024, 4096, DType::kF32, false, 0,
                                                DType::kI8}));

// Several passes of a block over its rows, with ragged rows and columns.
INSTANTIATE_TEST_SUITE_P(
    Passes, EightBitMatMulGpuTest,
    ::testing::Values(Case{7, 19027, 1040, DType::kBF16, true},
                      Case{5, 19027, 2080, DType::kBF16, true, 128}, Case{1, 28672, 4096},
                      Case{5, 19027, 1040, DType::kBF16, true, 0, DType::kI8},
                      Case{12, 19027, 1040, DType::kF16, true, 0, DType::kI8}));

// Leaves the product in `all`.
void ExpectSameBitsAgain(const EightBit& x, const EightBit& w, const TensorView& bias,
                         DeviceTensor& all) {
  ExpectSameBits(
      [&](const cuda::Device&) {
        all.Poison();
        Op().Run({.x = x.view(), .w = w.view(), .bias = bias, .out = all.view()});
      },
      [&] {
        Array got = all.Get();
        return std::string(static_cast<char*>(got.data()), got.byte_size());
      });
}

// The library and the tiles of many tokens: an algorithm that is chosen once gives the same bits.
TEST(EightBitMatMulBitsTest, ManyTokensHaveTheSameBitsAgain) {
  for (const int64_t tokens : {17, 64, 200, 1024}) {
    for (const int64_t k : {4096, 14336}) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens of " + std::to_string(k));
      Random random(static_cast<uint64_t>(tokens + k));
      const EightBit x(random, tokens, k), w(random, 1024, k);
      DeviceTensor all(DType::kBF16, tokens, 1024);
      ExpectSameBitsAgain(x, w, {}, all);
    }
  }
}

void ExpectTokensAlone(int64_t tokens, int32_t scale_rows, DType dtype = DType::kE4M3) {
  constexpr int64_t kN = 4096, kK = 1040;
  Random random(5);
  const EightBit x(random, tokens, kK, scale_rows == 0 ? 0 : 1, dtype);
  const EightBit w(random, kN, kK, scale_rows, dtype);
  // In 32 bits, so that no rounding of a result hides another.
  DeviceTensor all(DType::kF32, tokens, kN), alone(DType::kF32, tokens, kN);
  Array values = Array::Normal(random, DType::kF32, {kN}, 3.0);
  const DeviceTensor bias(DType::kF32, 1, kN, values);
  const TensorView bias_view(bias.view().data, DType::kF32, {kN});
  ExpectSameBitsAgain(x, w, bias_view, all);
  for (int64_t t = 0; t < tokens; ++t) {
    Op().Run({.x = x.view().Rows(t, 1),
              .w = w.view(),
              .bias = bias_view,
              .out = alone.view().Rows(t, 1)});
  }
  EXPECT_TRUE(alone.Get().SameBits(all.Get()));
}

TEST(EightBitMatMulBitsTest, FewTokensDoNotChangeEachOthersBits) { ExpectTokensAlone(16, 0); }

TEST(EightBitMatMulBitsTest, TokensOfIntegersDoNotChangeEachOthersBits) {
  ExpectTokensAlone(16, 0, DType::kI8);
  ExpectTokensAlone(37, 0, DType::kI8);
  ExpectTokensAlone(300, 0, DType::kI8);
}

TEST(EightBitMatMulBitsTest, TokensOfBlocksDoNotChangeEachOthersBits) {
  ExpectTokensAlone(16, 128);
  ExpectTokensAlone(37, 128);
  ExpectTokensAlone(7, 16);
}

}  // namespace
}  // namespace quire::gpu
