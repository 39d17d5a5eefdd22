// MatMul on the device: close to float64, exact on integers, and the same bits in every batch.
//
// Covers kernels/cuda/matmul/algorithm_search.cc, kernels/cuda/matmul/lt_product.cc,
// kernels/cuda/matmul/product_choice.cc
#include "kernels/cuda/matmul/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/skinny_matmul.h"
#include "tests/gpu/device_array.h"

namespace quire::cuda {
namespace {

using gpu::DeviceArray;

// Weights repeat a pattern, so copies fill any matrix and the host knows every element.
constexpr int64_t kPattern = 1000003;

uint16_t Narrow(float value, DType dtype) {
  return dtype == DType::kBF16 ? FromFloat<BF16>(value).bits : FromFloat<F16>(value).bits;
}
double Widen(uint16_t bits, DType dtype) {
  return dtype == DType::kBF16 ? ToFloat(BF16{bits}) : ToFloat(F16{bits});
}

// Values of one operand: small integers, or reals in [-1, 1).
std::vector<uint16_t> Values(int64_t count, DType dtype, bool integers, uint32_t seed) {
  std::minstd_rand random(seed);
  std::uniform_int_distribution<int> whole(-2, 2);
  std::uniform_real_distribution<float> real(-1, 1);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& v : values) {
    v = Narrow(integers ? static_cast<float>(whole(random)) : real(random), dtype);
  }
  return values;
}

struct Case {
  int64_t tokens, n, k;
  DType in = DType::kBF16, out = DType::kBF16;
  bool bias = false, integers = false;
  int64_t x_gap = 0, out_gap = 0;  // elements between the rows
};

std::string Describe(const Case& c) {
  return "T " + std::to_string(c.tokens) + " n " + std::to_string(c.n) + " k " +
         std::to_string(c.k) + " " + Name(c.in) + " to " + Name(c.out) + (c.bias ? " bias" : "") +
         (c.integers ? " integers" : "");
}

// The operands of a case on the device, with the host's copy.
class Operands {
 public:
  explicit Operands(const Case& c)
      : case_(c),
        pattern_(Values(std::min(kPattern, c.n * c.k), c.in, c.integers, 1)),
        x_host_(Values(c.tokens * (c.k + c.x_gap), c.in, c.integers, 2)),
        bias_host_(Values(c.n, c.in, c.integers, 3)),
        w_(c.n * c.k),
        x_(x_host_),
        bias_((c.n * static_cast<int64_t>(SizeOf(c.out)))),
        out_(c.tokens * (c.n + c.out_gap) * static_cast<int64_t>(SizeOf(c.out))) {
    FillWeights();
    std::vector<uint8_t> bytes(static_cast<size_t>(bias_.size()));
    for (int64_t i = 0; i < c.n; ++i) {
      const float value = static_cast<float>(Widen(bias_host_[static_cast<size_t>(i)], c.in));
      if (c.out == DType::kF32) {
        std::memcpy(&bytes[static_cast<size_t>(i) * 4], &value, 4);
      } else {
        std::memcpy(&bytes[static_cast<size_t>(i) * 2], &bias_host_[static_cast<size_t>(i)], 2);
      }
    }
    bias_.Set(bytes);
  }

  MatMulParams Params() {
    MatMulParams p;
    p.x = TensorView(x_.data(), case_.in, {case_.tokens, case_.k});
    p.x.row_stride += case_.x_gap;
    p.w = TensorView(w_.data(), case_.in, {case_.n, case_.k});
    if (case_.bias) p.bias = TensorView(bias_.data(), case_.out, {case_.n});
    p.out = TensorView(out_.data(), case_.out, {case_.tokens, case_.n});
    p.out.row_stride += case_.out_gap;
    return p;
  }
  void Poison() { out_.Poison(); }
  std::vector<uint8_t> Out() const { return out_.Get(); }

  // One output exactly, and the sum of the magnitudes of its products.
  struct Sum {
    double value, size;
  };
  Sum Expected(int64_t t, int64_t row) const {
    double value = 0, size = 0;
    for (int64_t c = 0; c < case_.k; ++c) {
      const double x =
          Widen(x_host_[static_cast<size_t>(t * (case_.k + case_.x_gap) + c)], case_.in);
      const size_t at = static_cast<size_t>((row * case_.k + c)) % pattern_.size();
      const double product = x * Widen(pattern_[at], case_.in);
      value += product;
      size += std::abs(product);
    }
    if (case_.bias) value += Widen(bias_host_[static_cast<size_t>(row)], case_.in);
    return {value, size};
  }
  double At(const std::vector<uint8_t>& out, int64_t t, int64_t row) const {
    const size_t i = static_cast<size_t>(t * (case_.n + case_.out_gap) + row);
    if (case_.out == DType::kF32) {
      float value;
      std::memcpy(&value, &out[i * 4], 4);
      return value;
    }
    uint16_t bits;
    std::memcpy(&bits, &out[i * 2], 2);
    return Widen(bits, case_.out);
  }

 private:
  void FillWeights() {
    const int64_t first = static_cast<int64_t>(pattern_.size());
    CUDA_CHECK(cudaMemcpy(w_.data(), pattern_.data(), pattern_.size() * 2, cudaMemcpyHostToDevice));
    for (int64_t done = first; done < w_.size(); done *= 2) {
      const int64_t count = std::min(done, w_.size() - done);
      CUDA_CHECK(cudaMemcpy(w_.data() + done, w_.data(), static_cast<size_t>(count) * 2,
                            cudaMemcpyDeviceToDevice));
    }
    CUDA_CHECK(cudaDeviceSynchronize());
  }

  const Case case_;
  const std::vector<uint16_t> pattern_, x_host_, bias_host_;
  DeviceArray<uint16_t> w_, x_;
  DeviceArray<uint8_t> bias_, out_;
};

class MatMulTest : public ::testing::Test {
 protected:
  MatMulTest() : workspace_(MatMul::WorkspaceBytes()) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&device_.stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaDeviceGetAttribute(&device_.num_sms, cudaDevAttrMultiProcessorCount, 0));
    matmul_ = std::make_unique<MatMul>(device_, workspace_.data(), "");
  }
  ~MatMulTest() override {
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaStreamDestroy(device_.stream));
  }

  std::vector<uint8_t> Run(Operands& operands) {
    operands.Poison();
    workspace_.Poison();
    CUDA_CHECK(cudaDeviceSynchronize());
    matmul_->Run(operands.Params());
    return operands.Out();
  }

  void ExpectRight(const Case& c) {
    SCOPED_TRACE(Describe(c));
    Operands operands(c);
    const std::vector<uint8_t> out = Run(operands);
    std::minstd_rand random(4);
    const int64_t count = c.tokens * c.n;
    const int64_t samples = std::min<int64_t>(count, c.k > 1024 ? 1500 : 6000);
    int wrong = 0;
    for (int64_t i = 0; i < samples && wrong < 5; ++i) {
      // All outputs of a small product; the corners and random outputs of a large one.
      int64_t at = samples == count ? i : static_cast<int64_t>(random()) % count;
      if (i < 4 && samples < count) at = i < 2 ? i * (c.n - 1) : count - 1 - (i - 2) * (c.n - 1);
      const int64_t t = at / c.n, row = at % c.n;
      const auto [value, size] = operands.Expected(t, row);
      const double got = operands.At(out, t, row);
      bool right;
      if (c.integers) {
        const double rounded =
            c.out == DType::kF32 ? value : Widen(Narrow(static_cast<float>(value), c.out), c.out);
        right = got == rounded;
      } else {
        const double unit = c.out == DType::kF32 ? 0 : c.out == DType::kBF16 ? 0x1p-8 : 0x1p-11;
        right = std::abs(got - value) <= unit * std::abs(value) + 1e-6 * (size + 1);
      }
      if (!right) {
        ++wrong;
        ADD_FAILURE() << "token " << t << " row " << row << ": " << got << ", expected " << value;
      }
    }
    // The gaps between the rows are still poison.
    const size_t element = SizeOf(c.out);
    for (int64_t t = 0; t < c.tokens && c.out_gap > 0; ++t) {
      const auto gap = out.begin() + (t * (c.n + c.out_gap) + c.n) * static_cast<int64_t>(element);
      const auto end = gap + c.out_gap * static_cast<int64_t>(element);
      EXPECT_TRUE(std::all_of(gap, end, [](uint8_t b) { return b == 0xFF; })) << "token " << t;
    }
  }

  Device device_;
  DeviceArray<uint8_t> workspace_;
  std::unique_ptr<MatMul> matmul_;
};

TEST_F(MatMulTest, IsExactOnIntegersOfEveryRaggedShape) {
  for (const int64_t tokens : {1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 65, 129, 300}) {
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 8}, {16, 64}, {97, 64}, {192, 64}, {33, 72}, {64, 520}, {513, 904}}) {
      ExpectRight({.tokens = tokens, .n = n, .k = k, .out = DType::kF32, .integers = true});
    }
  }
}

TEST_F(MatMulTest, IsExactOnIntegersOfEveryTokenCount) {
  for (int64_t tokens = 1; tokens <= 300; tokens += tokens < 40 ? 1 : 13) {
    ExpectRight({.tokens = tokens, .n = 896, .k = 896, .integers = true});
  }
}

TEST_F(MatMulTest, AcceptsUnalignedRows) {
  for (const int64_t tokens : {1, 5, 16, 33}) {
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
             {97, 97}, {128, 63}, {97, 4}, {5, 1}, {97, 132}}) {
      ExpectRight({.tokens = tokens, .n = n, .k = k, .integers = true});
      ExpectRight({.tokens = tokens, .n = n, .k = k, .out = DType::kF32, .integers = true});
    }
    ExpectRight({.tokens = tokens, .n = 97, .k = 64, .integers = true, .x_gap = 3, .out_gap = 5});
  }
}

TEST_F(MatMulTest, AcceptsStridedRowsBiasesAndAllTypes) {
  for (const DType in : {DType::kBF16, DType::kF16}) {
    for (const DType out : {in, DType::kF32}) {
      for (const bool integers : {true, false}) {
        for (const int64_t tokens : {1, 3, 8, 12, 16, 40}) {
          ExpectRight({.tokens = tokens,
                       .n = 328,
                       .k = 448,
                       .in = in,
                       .out = out,
                       .bias = true,
                       .integers = integers,
                       .x_gap = 64,
                       .out_gap = 24});
        }
      }
    }
  }
}

TEST_F(MatMulTest, IsCloseToDoubleArithmeticOnTheShapesOfModels) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336},             // Llama 8B
      {1152, 896},  {896, 896},   {9728, 896},   {896, 4864},               // Qwen2.5 0.5B
      {3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192},  {192, 64},  // Llama 1B, tiny
  };
  for (const auto& [n, k] : shapes) {
    for (const int64_t tokens : {1, 6, 16, 17, 100, 300}) {
      ExpectRight({.tokens = tokens, .n = n, .k = k, .bias = n == 1152});
    }
    ExpectRight({.tokens = 16, .n = n, .k = k, .integers = true});
  }
  for (const auto& [n, k] :
       std::vector<std::pair<int64_t, int64_t>>{{128256, 4096}, {151936, 896}, {128256, 2048}}) {
    for (const int64_t tokens : {1, 16, 64}) {
      ExpectRight({.tokens = tokens, .n = n, .k = k, .out = DType::kF32});
    }
  }
}

// Rows [begin, begin + count) of a dense output.
std::vector<uint8_t> RowsOf(const std::vector<uint8_t>& out, int64_t begin, int64_t count,
                            int64_t row_bytes) {
  return {out.begin() + begin * row_bytes, out.begin() + (begin + count) * row_bytes};
}

TEST_F(MatMulTest, BitsOfFewTokensDoNotDependOnTheBatch) {
  for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
           {6144, 4096}, {4096, 14336}, {896, 4864}, {1000, 72}}) {
    Operands operands({.tokens = 16, .n = n, .k = k, .out = DType::kF32});
    const std::vector<uint8_t> all = Run(operands);
    const MatMulParams full = operands.Params();
    for (int64_t begin = 0; begin < 16; begin += 3) {
      for (int64_t count = 1; begin + count <= 16; count += 2) {
        MatMulParams part = full;
        part.x = full.x.Rows(begin, count);
        part.out = full.out.Rows(begin, count);
        operands.Poison();
        CUDA_CHECK(cudaDeviceSynchronize());  // the stream does not wait for the default one
        matmul_->Run(part);
        ASSERT_EQ(RowsOf(operands.Out(), begin, count, n * 4), RowsOf(all, begin, count, n * 4))
            << "n " << n << " k " << k << " tokens " << begin << " and " << count;
      }
    }
  }
}

TEST_F(MatMulTest, BitsOfFewTokensDoNotDependOnMultiprocessors) {
  Operands operands({.tokens = 5, .n = 3072, .k = 2048});
  const std::vector<uint8_t> all = Run(operands);
  for (const int sms : {1, 7, 66, 100}) {
    Device device = device_;
    device.num_sms = sms;
    operands.Poison();
    CUDA_CHECK(cudaDeviceSynchronize());
    SkinnyMatMul(operands.Params(), device);
    EXPECT_EQ(operands.Out(), all) << sms;
  }
}

TEST_F(MatMulTest, BitsOfFewTokensDoNotDependOnTheSliceOfRows) {
  Operands operands({.tokens = 4, .n = 600, .k = 1024});
  const std::vector<uint8_t> all = Run(operands);
  MatMulParams p = operands.Params();
  p.w = p.w.Rows(101, 77);
  p.out = p.out.Columns(101, 77);
  operands.Poison();
  CUDA_CHECK(cudaDeviceSynchronize());
  matmul_->Run(p);
  const std::vector<uint8_t> out = operands.Out();
  for (int64_t t = 0; t < 4; ++t) {
    const int64_t at = (t * 600 + 101) * 2;
    EXPECT_EQ(std::vector<uint8_t>(out.begin() + at, out.begin() + at + 77 * 2),
              std::vector<uint8_t>(all.begin() + at, all.begin() + at + 77 * 2));
  }
}

TEST_F(MatMulTest, RepeatsTheSameBits) {
  for (const auto& [n, k] :
       std::vector<std::pair<int64_t, int64_t>>{{4096, 4096}, {4096, 14336}, {97, 97}}) {
    for (const int64_t tokens : {1, 16, 17, 40, 64, 130, 300}) {
      Operands operands({.tokens = tokens, .n = n, .k = k});
      const std::vector<uint8_t> first = Run(operands);
      for (int i = 0; i < 20; ++i) ASSERT_EQ(Run(operands), first) << tokens << " " << n;
    }
  }
}

// A chain of products, each of which reads the output of the one before, back and forth between two
// buffers: a kernel that runs ahead of its predecessor reads or overwrites wrong values.
class MatMulChainTest : public MatMulTest, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr int kLength = 24;
  static constexpr int64_t kWidth = 2048;

  MatMulChainTest() : weights_(kLength * kWidth * kWidth), a_(16 * kWidth), b_(16 * kWidth) {
    std::vector<uint16_t> values = Values(weights_.size(), DType::kBF16, false, 5);
    for (uint16_t& v : values) v = Narrow(ToFloat(BF16{v}) / 26, DType::kBF16);
    weights_.Set(values);
    start_ = Values(16 * kWidth, DType::kBF16, false, 6);
  }

  void Enqueue(MatMul& matmul, int64_t tokens) {
    for (int i = 0; i < kLength; ++i) {
      const TensorView w(weights_.data() + i * kWidth * kWidth, DType::kBF16, {kWidth, kWidth});
      const TensorView a(a_.data(), DType::kBF16, {tokens, kWidth});
      const TensorView b(b_.data(), DType::kBF16, {tokens, kWidth});
      matmul.Run({.x = i % 2 == 0 ? a : b, .w = w, .bias = {}, .out = i % 2 == 0 ? b : a});
    }
  }
  std::vector<uint16_t> RunChain(const std::function<void()>& run) {
    a_.Set(start_);
    b_.Poison();
    CUDA_CHECK(cudaDeviceSynchronize());
    run();
    return a_.Get();
  }

  DeviceArray<uint16_t> weights_, a_, b_;
  std::vector<uint16_t> start_;
};

TEST_P(MatMulChainTest, DependentLaunchAndGraphsChangeNoBit) {
  const int64_t tokens = GetParam();
  Device one_by_one = device_;
  one_by_one.dependent_launch = false;
  MatMul plain(one_by_one, workspace_.data(), "");
  const std::vector<uint16_t> expected = RunChain([&] { Enqueue(plain, tokens); });
  EXPECT_EQ(RunChain([&] { Enqueue(*matmul_, tokens); }), expected);

  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(device_.stream, cudaStreamCaptureModeThreadLocal));
  Enqueue(*matmul_, tokens);
  CUDA_CHECK(cudaStreamEndCapture(device_.stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(RunChain([&] { CUDA_CHECK(cudaGraphLaunch(exec, device_.stream)); }), expected) << i;
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
}
INSTANTIATE_TEST_SUITE_P(Tokens, MatMulChainTest, ::testing::Values(1, 8, 16));

TEST_F(MatMulTest, TimesNothingDuringACapture) {
  Operands operands({.tokens = 50, .n = 2048, .k = 1024, .out = DType::kF32, .integers = true});
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(device_.stream, cudaStreamCaptureModeThreadLocal));
  matmul_->Run(operands.Params());
  CUDA_CHECK(cudaStreamEndCapture(device_.stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  operands.Poison();
  CUDA_CHECK(cudaDeviceSynchronize());
  CUDA_CHECK(cudaGraphLaunch(exec, device_.stream));
  const std::vector<uint8_t> out = operands.Out();
  for (int64_t i = 0; i < 2048; i += 7) {
    ASSERT_EQ(operands.At(out, i % 50, i), operands.Expected(i % 50, i).value);
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

class ChoicesTest : public MatMulTest {
 protected:
  ChoicesTest() { std::remove(path_.c_str()); }
  ~ChoicesTest() override { std::remove(path_.c_str()); }

  std::string Contents() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // One start of a server: makes a MatMul, runs the product, saves the choices.
  std::vector<uint8_t> Start(Operands& operands) {
    matmul_ = std::make_unique<MatMul>(device_, workspace_.data(), path_);
    std::vector<uint8_t> out = Run(operands);
    matmul_->SaveChoices();
    return out;
  }

  const std::string path_ = ::testing::TempDir() + "/matmul_choices";
};

TEST_F(ChoicesTest, AreLoadedFromTheFileOfAnEarlierStart) {
  Operands operands({.tokens = 90, .n = 2048, .k = 2048});
  const std::vector<uint8_t> out = Start(operands);
  const std::string saved = Contents();
  // One line each for 24, 32, 48, 64 and 96 tokens, two lines before them and one after.
  EXPECT_EQ(std::count(saved.begin(), saved.end(), '\n'), 8) << saved;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Start(operands), out);
    EXPECT_EQ(Contents(), saved);
  }
}

TEST_F(ChoicesTest, AreTimedAgainIfTheFileIsDamaged) {
  Operands operands({.tokens = 20, .n = 2048, .k = 2048, .out = DType::kF32, .integers = true});
  const std::vector<uint8_t> out = Start(operands);
  std::string damaged = Contents();
  damaged[damaged.size() / 2] ^= 1;
  std::ofstream(path_) << damaged;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Start(operands), out);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("is not used"));
  EXPECT_NE(Contents(), damaged);
}

}  // namespace
}  // namespace quire::cuda
