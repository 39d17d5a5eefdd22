// MatMul of packed matrices on the device: close to float64 and to the CPU backend, by every cut,
// the same bits in every batch of 1 and 2 and of 3 to 16 tokens, and nothing read or written past
// the ends.
//
// Covers kernels/cuda/matmul/packed/packed_weights.cuh,
// kernels/cuda/matmul/packed/packed_bands.cuh, kernels/cuda/matmul/packed/digit_cutter.cuh,
// kernels/cuda/rows/gather_columns.cu
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/packed/digit_matmul.h"
#include "kernels/cuda/matmul/packed/expand_packed.h"
#include "kernels/cuda/matmul/packed/grouped_matmul.h"
#include "kernels/cuda/matmul/packed_matmul.h"
#include "kernels/cuda/matmul/tile_matmul.h"
#include "tests/gpu/op_test.h"
#include "tests/kernels/packed_matrix.h"

namespace quire::gpu {
namespace {

struct Case {
  int64_t tokens;
  PackedShape w;
  DType dtype = DType::kBF16;
  bool bias = false;
};

// A packed matrix on the device beside the host's.
class DevicePacked {
 public:
  DevicePacked(Random& random, const PackedShape& shape)
      : host_(random, shape),
        bytes_(host_.bytes()),
        scales_(host_.scales()),
        zeros_(shape.zeros ? host_.zeros() : std::vector<uint8_t>(16)) {}

  TensorView view() const { return host_.view(bytes_.data(), scales_.data(), zeros_.data()); }
  PackedMatrix& host() { return host_; }
  double At(int64_t r, int64_t c) const { return host_.At(r, c); }
  // As a matrix of `dtype` holds it: the float of the value is rounded.
  double Rounded(int64_t r, int64_t c, DType dtype) const {
    const auto value = static_cast<float>(At(r, c));
    if (dtype == DType::kBF16) return ToFloat(FromFloat<BF16>(value));
    return ToFloat(FromFloat<F16>(value));
  }

 private:
  PackedMatrix host_;
  const DeviceArray<uint8_t> bytes_;
  const DeviceArray<float> scales_;
  const DeviceArray<uint8_t> zeros_;
};

cuda::MatMul& Op() {
  static DeviceArray<char>* const workspace = new DeviceArray<char>(cuda::MatMul::WorkspaceBytes());
  static auto* const op = new cuda::MatMul(TestDevice(), workspace->data(), "");
  return *op;
}

class PackedMatMulGpuTest : public ::testing::TestWithParam<Case> {};

TEST_P(PackedMatMulGpuTest, MatchesDoubleArithmetic) {
  const Case& c = GetParam();
  const int64_t n = c.w.n, k = c.w.k;
  Random random(static_cast<uint64_t>(c.tokens * 31 + n + k));
  const DevicePacked w(random, c.w);
  Array x = Array::Normal(random, c.dtype, {c.tokens, k});
  const DeviceTensor device_x(c.dtype, c.tokens, k, x, 8);  // NaN between the rows
  Array bias = Array::Normal(random, c.dtype, {n}, 3.0);
  const DeviceTensor device_bias(c.dtype, 1, n, bias);
  TensorView bias_view;
  if (c.bias) bias_view = TensorView(device_bias.view().data, c.dtype, {n});
  DeviceTensor out(c.dtype, c.tokens, n, 8);
  const MatMulParams params{
      .x = device_x.view(), .w = w.view(), .bias = bias_view, .out = out.view()};
  Op().Run(params);
  const Array got = out.Get();
  // Otherwise the library multiplies rounded weights.
  const bool packed = c.tokens <= cuda::kMostPackedTokens && cuda::FitsGroupedMatMul(params);
  for (int sample = 0; sample < 3000; ++sample) {
    const int64_t t = random.Below(c.tokens), r = random.Below(n);
    double sum = c.bias ? bias[r] : 0, size = std::abs(sum);
    for (int64_t i = 0; i < k; ++i) {
      const double product = x[t * k + i] * (packed ? w.At(r, i) : w.Rounded(r, i, c.dtype));
      sum += product;
      size += std::abs(product);
    }
    ASSERT_LE(std::abs(got[t * n + r] - sum), StoreError(c.dtype) * std::abs(sum) + 4e-6 * size)
        << "token " << t << " row " << r;
  }
}

constexpr PackedShape Four(int64_t n, int64_t k, int32_t group, bool zeros = false) {
  return {DType::kU4, n, k, group, zeros};
}
constexpr PackedShape Eight(int64_t n, int64_t k, int32_t group, bool zeros = false) {
  return {DType::kU8, n, k, group, zeros};
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PackedMatMulGpuTest,
    ::testing::Values(
        Case{1, Four(16, 128, 128)}, Case{1, Four(1, 32, 32)}, Case{1, Four(16, 32, 0, true)},
        Case{2, Four(32, 96, 32, true)}, Case{3, Four(1008, 320, 64)},
        Case{4, Four(33, 192, 64, true), DType::kF16}, Case{4, Four(48, 192, 64), DType::kF16},
        Case{5, Four(80, 160, 0), DType::kBF16, true}, Case{5, Four(67, 160, 0, true)},
        Case{1, Four(6144, 4096, 128)}, Case{8, Four(4096, 14336, 128, true)},
        Case{7, Four(4096, 4096, 32, true), DType::kF16}, Case{9, Four(28672, 4096, 128)},
        Case{16, Four(5120, 2048, 64, true), DType::kBF16, true}, Case{17, Four(4096, 4096, 128)},
        Case{33, Four(515, 1056, 32), DType::kF16}, Case{32, Four(6144, 4096, 128, true)},
        Case{33, Four(6144, 4096, 128, true)}, Case{200, Four(1000, 14336, 64), DType::kF16, true},
        Case{130, Four(28672, 4096, 0)}, Case{100, Four(24, 96, 32, true)},
        Case{1, Eight(16, 128, 128)}, Case{1, Eight(5, 32, 0)}, Case{3, Eight(336, 224, 32, true)},
        Case{2, Eight(16, 32, 0)}, Case{6, Eight(4096, 4096, 0)},
        Case{12, Eight(1040, 4160, 64), DType::kF16, true}, Case{16, Eight(4096, 14336, 128, true)},
        Case{64, Eight(2048, 1024, 0, true)}, Case{200, Eight(4096, 4096, 128, true), DType::kF16},
        Case{513, Four(1024, 2048, 128, true)}, Case{1024, Eight(2048, 1024, 0)}));

// Kernels of few tokens take one tile of tokens or two, several bands a pass, several passes,
// stages that are used again, every size of a group and a ragged last chunk.
INSTANTIATE_TEST_SUITE_P(
    Bands, PackedMatMulGpuTest,
    ::testing::Values(Case{1, Four(19024, 2080, 32, true)}, Case{1, Four(2048, 1536, 256, true)},
                      Case{5, Four(19024, 2112, 64, true), DType::kF16},
                      Case{3, Eight(19024, 2080, 0)}, Case{6, Four(272, 416, 32, true)},
                      Case{6, Four(2048, 1536, 256, true)},
                      Case{4, Eight(208, 448, 64, true), DType::kF16},
                      Case{10, Four(19024, 2080, 32, true), DType::kF16},
                      Case{13, Four(112, 544, 0, true)}, Case{15, Eight(4096, 2080, 32)}));
// The same under the sanitizers, small: a block has its ring filled more than once.
INSTANTIATE_TEST_SUITE_P(
    Small, PackedMatMulGpuTest,
    ::testing::Values(Case{2, Four(32, 96, 32, true)}, Case{2, Eight(4240, 2080, 0)},
                      Case{3, Four(1008, 320, 64)}, Case{5, Four(80, 160, 0), DType::kBF16, true},
                      Case{8, Eight(4240, 2080, 0)}, Case{12, Eight(4240, 2080, 32, true)},
                      Case{32, Four(48, 192, 64, true)}));

const cuda::TileClusters& Clusters() {
  static const cuda::TileClusters clusters = [] {
    cuda::PreparePackedMatMul();
    return cuda::PrepareTileMatMul(TestDevice());
  }();
  return clusters;
}

class PackedCutsTest : public ::testing::TestWithParam<Case> {};

TEST_P(PackedCutsTest, EveryCutMatchesDoubleArithmetic) {
  const Case& c = GetParam();
  const int64_t n = c.w.n, k = c.w.k;
  Random random(static_cast<uint64_t>(c.tokens * 31 + n + k));
  const DevicePacked w(random, c.w);
  Array x = Array::Normal(random, c.dtype, {c.tokens, k});
  const DeviceTensor device_x(c.dtype, c.tokens, k, x, 8);
  DeviceTensor out(c.dtype, c.tokens, n, 8);
  struct Sample {
    int64_t token, row;
    double sum = 0, size = 0;
  };
  std::vector<Sample> samples;
  for (int i = 0; i < 400; ++i) {
    // The last token and row, too.
    Sample s{i == 0 ? c.tokens - 1 : random.Below(c.tokens), i <= 1 ? n - 1 : random.Below(n)};
    for (int64_t column = 0; column < k; ++column) {
      const double product = x[s.token * k + column] * w.At(s.row, column);
      s.sum += product;
      s.size += std::abs(product);
    }
    samples.push_back(s);
  }
  const MatMulParams p{.x = device_x.view(), .w = w.view(), .bias = {}, .out = out.view()};
  ASSERT_TRUE(cuda::FitsGroupedMatMul(p));
  const int64_t chunks = (k + cuda::kPackedChunk - 1) / cuda::kPackedChunk;
  for (const int rows : {16, 96, 112, 128}) {
    for (const int tokens : cuda::kPackedTileTokens) {
      for (int split = 1; split <= std::min<int64_t>(cuda::kMaxTileSplit, chunks); ++split) {
        out.Poison();
        cuda::PackedMatMul(p, {rows, tokens, split}, Clusters(), TestDevice());
        const Array got = out.Get();
        for (const Sample& s : samples) {
          ASSERT_LE(std::abs(got[s.token * n + s.row] - s.sum),
                    StoreError(c.dtype) * std::abs(s.sum) + 4e-6 * s.size)
              << "cut " << rows << "/" << tokens << "/" << split << " token " << s.token << " row "
              << s.row;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PackedCutsTest,
                         ::testing::Values(Case{17, Four(4096, 2048, 128)},
                                           Case{1, Four(16, 32, 32)},
                                           Case{70, Four(1008, 1184, 32, true), DType::kF16},
                                           Case{200, Four(512, 1024, 256, true)},
                                           Case{33, Eight(1008, 1056, 32)},
                                           Case{130, Eight(528, 1024, 0, true), DType::kF16}));

// The CPU backend is the specification.
TEST(PackedMatMulTest, IsNearTheCpuBackend) {
  constexpr int64_t kTokens = 11, kN = 208, kK = 512;
  Random random(8);
  DevicePacked w(random, Four(kN, kK, 64, true));
  Array x = Array::Normal(random, DType::kBF16, {kTokens, kK}), wide(DType::kF32, {kTokens, kK});
  for (int64_t i = 0; i < x.size(); ++i) wide.Set(i, static_cast<float>(x[i]));
  Array expected(DType::kF32, {kTokens, kN});
  const std::unique_ptr<Backend> cpu = std::move(CreateCpuBackends(1, 1)[0]);
  cpu->MatMul({.x = wide.view(), .w = w.host().view(), .bias = {}, .out = expected.view()});
  const DeviceTensor device_x(DType::kBF16, kTokens, kK, x);
  DeviceTensor out(DType::kBF16, kTokens, kN);
  Op().Run({.x = device_x.view(), .w = w.view(), .bias = {}, .out = out.view()});
  const Array got = out.Get();
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], StoreError(DType::kBF16) * std::abs(expected[i]) + 1e-5);
  }
}

// One or two tokens: their activations share a power of two in each 128 columns. Beside a very
// large one the others are rounded to 2^-26 of it, and so a weight errs by that much of it at most;
// no token has an effect on the other.
TEST(DigitMatMulTest, TakesActivationsOfEverySize) {
  constexpr int64_t kTokens = 6, kN = 64;
  static_assert(kTokens % cuda::kMaxDigitTokens == 0);
  for (const PackedShape& shape :
       {Four(kN, 384, 128, true), Four(kN, 416, 32), Eight(kN, 416, 0), Eight(kN, 448, 64, true)}) {
    Random random(11);
    const int64_t k = shape.k;
    const DevicePacked w(random, shape);
    Array x = Array::Normal(random, DType::kBF16, {kTokens, k});
    for (int64_t c = 0; c < k; ++c) {
      x.Set(1 * k + c, 0);
      x.Set(2 * k + c, static_cast<float>(x[2 * k + c] * 1e-25));
      x.Set(5 * k + c, static_cast<float>(x[5 * k + c] * 1e30));
    }
    x.Set(0 * k + 200, 3e4f);
    x.Set(3 * k + 7, NAN);
    x.Set(4 * k + k - 16, INFINITY);
    const DeviceTensor device_x(DType::kBF16, kTokens, k, x);
    DeviceTensor out(DType::kBF16, kTokens, kN);
    for (int64_t t = 0; t < kTokens; t += cuda::kMaxDigitTokens) {
      Op().Run({.x = device_x.view().Rows(t, cuda::kMaxDigitTokens),
                .w = w.view(),
                .bias = {},
                .out = out.view().Rows(t, cuda::kMaxDigitTokens)});
    }
    const Array got = out.Get();
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t r = 0; r < kN; ++r) {
        if (t == 3 || t == 4) {
          EXPECT_FALSE(std::isfinite(got[t * kN + r])) << t;
          continue;
        }
        double sum = 0, size = 0, rounded = 0;
        for (int64_t begin = 0; begin < k; begin += 128) {
          double largest = 0, weights = 0;
          for (int64_t c = begin; c < std::min(begin + 128, k); ++c) {
            const double value = x[t * k + c], weight = w.At(r, c);
            sum += value * weight;
            size += std::abs(value * weight);
            largest = std::max(largest, std::abs(value));
            weights += std::abs(weight);
          }
          rounded += 0x1p-26 * largest * weights;
        }
        const double error = std::abs(got[t * kN + r] - sum);
        ASSERT_LE(error, StoreError(DType::kBF16) * std::abs(sum) + 4e-6 * size + rounded)
            << "token " << t << " row " << r << " of k " << k << ": " << got[t * kN + r]
            << " instead of " << sum;
      }
    }
  }
}

std::string BytesOfArray(Array array) {
  return {static_cast<char*>(array.data()), array.byte_size()};
}

// Runs `most` tokens at once, then `batches` at a time, and in slices of rows as ranks hold them.
void ExpectSameBitsInBatches(const PackedShape& shape, int64_t most,
                             std::initializer_list<int64_t> batches) {
  Random random(5);
  const DevicePacked w(random, shape);
  Array x = Array::Normal(random, DType::kBF16, {most, shape.k});
  const DeviceTensor device_x(DType::kBF16, most, shape.k, x);
  DeviceTensor all(DType::kBF16, most, shape.n), other(DType::kBF16, most, shape.n);
  ExpectSameBits(
      [&](const cuda::Device&) {
        all.Poison();
        Op().Run({.x = device_x.view(), .w = w.view(), .bias = {}, .out = all.view()});
      },
      [&] { return BytesOfArray(all.Get()); });
  for (const int64_t batch : batches) {
    other.Poison();
    for (int64_t t = 0; t < most; t += batch) {
      const int64_t count = std::min(batch, most - t);
      Op().Run({.x = device_x.view().Rows(t, count),
                .w = w.view(),
                .bias = {},
                .out = other.view().Rows(t, count)});
    }
    EXPECT_TRUE(other.Get().SameBits(all.Get())) << most << " tokens by " << batch;
  }
  constexpr int64_t kSlice = 1024;
  other.Poison();
  for (int64_t r = 0; r < shape.n; r += kSlice) {
    Op().Run({.x = device_x.view(),
              .w = w.view().Rows(r, kSlice),
              .bias = {},
              .out = other.view().Columns(r, kSlice)});
  }
  EXPECT_TRUE(other.Get().SameBits(all.Get())) << most << " tokens";
}

// One and two tokens have a kernel, and 3 to 16 have another.
TEST(PackedMatMulBitsTest, TokensDoNotChangeEachOthersBits) {
  for (const PackedShape& shape : {Four(4096, 1152, 128, true), Eight(4096, 1152, 32)}) {
    ExpectSameBitsInBatches(shape, cuda::kMaxDigitTokens, {1});
    ExpectSameBitsInBatches(shape, cuda::kMaxGroupedTokens, {4, 9, 13});  // and rests of 7 and 3
  }
}

// Two products in turn share the memory that weights are expanded to.
TEST(PackedMatMulBitsTest, ManyTokensGiveTheSameBitsEachTime) {
  constexpr int64_t kTokens = 600, kK = 4096;
  Random random(6);
  const DevicePacked a(random, Four(10240, kK, 128)), b(random, Eight(6144, kK, 0, true));
  Array x = Array::Normal(random, DType::kBF16, {kTokens, kK});
  const DeviceTensor device_x(DType::kBF16, kTokens, kK, x);
  DeviceTensor of_a(DType::kBF16, kTokens, 10240), of_b(DType::kBF16, kTokens, 6144);
  ExpectSameBits(
      [&](const cuda::Device&) {
        of_a.Poison(), of_b.Poison();
        for (int i = 0; i < 3; ++i) {
          Op().Run({.x = device_x.view(), .w = a.view(), .bias = {}, .out = of_a.view()});
          Op().Run({.x = device_x.view(), .w = b.view(), .bias = {}, .out = of_b.view()});
        }
      },
      [&] { return BytesOfArray(of_a.Get()) + BytesOfArray(of_b.Get()); });
}

TEST(ExpandPackedTest, RoundsEachValueOnce) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const PackedShape& shape :
         {Four(37, 96, 32, true), Four(130, 4160, 64), Four(3, 2080, 0, true),
          Eight(37, 96, 32, true), Eight(70001, 32, 0), Eight(9, 4224, 128, true)}) {
      Random random(static_cast<uint64_t>(shape.k));
      const DevicePacked w(random, shape);
      DeviceTensor out(dtype, shape.n, shape.k);
      cuda::ExpandPacked(w.view(), out.view(), TestDevice());
      const Array got = out.Get();
      for (int64_t r = 0; r < shape.n; ++r) {
        for (int64_t c = 0; c < shape.k; ++c) {
          ASSERT_EQ(got[r * shape.k + c], w.Rounded(r, c, dtype)) << r << " " << c;
        }
      }
    }
  }
}

TEST(GatherColumnsGpuTest, CopiesTheNamedColumns) {
  for (const int64_t width : {1, 33, 96, 4096, 5000}) {
    for (const int64_t rows : {1, 3, 4, 37, 300}) {
      Random random(static_cast<uint64_t>(width + rows));
      Array x = Array::Normal(random, DType::kBF16, {rows, width});
      const DeviceTensor device_x(DType::kBF16, rows, width, x, 3);
      std::vector<int32_t> columns(static_cast<size_t>(width));
      for (int32_t& column : columns) column = static_cast<int32_t>(random.Below(width));
      const DeviceArray<int32_t> device_columns(columns);
      DeviceTensor out(DType::kBF16, rows, width, 5);
      cuda::GatherColumns(
          {.x = device_x.view(), .columns = device_columns.data(), .out = out.view()},
          TestDevice());
      const Array got = out.Get();
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < width; ++c) {
          ASSERT_EQ(got[r * width + c], x[r * width + columns[static_cast<size_t>(c)]]);
        }
      }
    }
  }
}

// Random integers of benchmarks have the bits of the CPU backend.
TEST(PackedMatMulTest, FillUniformGivesTheBitsOfTheCpu) {
  for (const int64_t rows : {1, 3, 5000}) {
    std::vector<uint8_t> expected(static_cast<size_t>(rows * 48));
    const std::unique_ptr<Backend> cpu = std::move(CreateCpuBackends(1, 1)[0]);
    cpu->FillUniform(
        {.out = TensorView(expected.data(), DType::kU4, {rows, 96}), .seed = 9, .amplitude = 1});
    const DeviceArray<uint8_t> got(rows * 48);
    cuda::FillUniform(
        {.out = TensorView(got.data(), DType::kU4, {rows, 96}), .seed = 9, .amplitude = 1},
        TestDevice());
    EXPECT_EQ(got.Get(), expected);
  }
}

}  // namespace
}  // namespace quire::gpu
