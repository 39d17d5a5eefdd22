// The matrix products of Llama-3.1-8B's layers with packed weights, 4 bits in groups of 128 or 8
// bits with a scale a row: each shape in a graph over the weights of many layers, next to the time
// of its bytes or its arithmetic. Samples of each product are held against float64 first. Prints
// one JSON object per line. Usage: packed_matmul_gpu_bench [int4 | int8] [TOKENS...]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "bench/gpu/graph_timer.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/packed_row.h"

namespace quire::gpu {
namespace {

constexpr double kFlopsPerSecond = 788e12;
constexpr float kScale = 0x1p-8f;

struct Shape {
  const char* name;
  int64_t n, k;
};
constexpr Shape kShapes[] = {
    {"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}};
constexpr int64_t kMaxWidth = 14336, kMaxRows = 28672;
constexpr int kLayers = 16;

template <typename T>
T* OnDevice(const std::vector<T>& values) {
  void* data;
  CUDA_CHECK(cudaMalloc(&data, values.size() * sizeof(T)));
  CUDA_CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(data);
}

class Bench {
 public:
  Bench(DType weights, int64_t max_tokens) : dtype_(weights), copy_rate_(timer_.CopyRate()) {
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    x_values_.resize(static_cast<size_t>(max_tokens * kMaxWidth));
    for (BF16& x : x_values_) x = FromFloat<BF16>(uniform(random));
    x_ = OnDevice(x_values_);
    // A scale for each layer's rows and groups, so that caches hold no more of them than in a step.
    const int64_t scales = kLayers * kMaxRows * kMaxWidth / 128;
    scales_ = OnDevice(std::vector<float>(static_cast<size_t>(scales), kScale));
    const int64_t bytes = kLayers * BytesOf(dtype_, kMaxRows * 4096);
    CUDA_CHECK(cudaMalloc(&weights_, static_cast<size_t>(bytes)));
    cuda::FillUniform({.out = TensorView(weights_, dtype_, {bytes / BytesOf(dtype_, 4096), 4096}),
                       .seed = 5,
                       .amplitude = 1},
                      timer_.device());
    CUDA_CHECK(cudaMalloc(&out_, static_cast<size_t>(max_tokens * kMaxRows) * 2));
    void* workspace;
    CUDA_CHECK(cudaMalloc(&workspace, static_cast<size_t>(cuda::MatMul::WorkspaceBytes())));
    matmul_ = std::make_unique<cuda::MatMul>(timer_.device(), workspace, "");
  }

  // False if a sampled output differs from float64.
  bool Right(const Shape& s, int64_t tokens) {
    const MatMulParams p = Params(s, 0, tokens);
    matmul_->Run(p);
    CUDA_CHECK(cudaDeviceSynchronize());
    std::minstd_rand random(3);
    std::vector<uint8_t> row(static_cast<size_t>(BytesOf(dtype_, s.k)));
    for (int sample = 0; sample < 30; ++sample) {
      const int64_t t = static_cast<int64_t>(random()) % tokens;
      const int64_t r = static_cast<int64_t>(random()) % s.n;
      CUDA_CHECK(cudaMemcpy(row.data(), p.w.Rows(r, 1).data, row.size(), cudaMemcpyDeviceToHost));
      double sum = 0, size = 0;
      for (int64_t c = 0; c < s.k; ++c) {
        const int element = static_cast<int>(GetPacked(dtype_, row.data(), c)) - MiddleOf(dtype_);
        const double product =
            double{kScale} * element * ToFloat(x_values_[static_cast<size_t>(t * s.k + c)]);
        sum += product;
        size += std::abs(product);
      }
      BF16 bits;
      CUDA_CHECK(cudaMemcpy(&bits, p.out.row<BF16>(t) + r, 2, cudaMemcpyDeviceToHost));
      if (std::abs(ToFloat(bits) - sum) <= 0x1p-8 * std::abs(sum) + 4e-6 * size) continue;
      std::fprintf(stderr, "%s: token %ld row %ld is wrong: not timed\n", s.name,
                   static_cast<long>(t), static_cast<long>(r));
      return false;
    }
    return true;
  }

  void Time(const Shape& s, int64_t tokens) {
    matmul_->Run(Params(s, 0, tokens));  // chooses algorithms outside the capture
    const double us = timer_.Microseconds(
        4 * kLayers, [&](int i) { matmul_->Run(Params(s, i % kLayers, tokens)); });
    const auto n = static_cast<double>(s.n), k = static_cast<double>(s.k);
    const auto t = static_cast<double>(tokens);
    const double bytes =
        n * k * (dtype_ == DType::kU4 ? 0.5 : 1) + n * Blocks(s) * 4 + 2 * t * (n + k);
    const double floor = std::max(bytes / copy_rate_, 2 * t * n * k / kFlopsPerSecond) * 1e6;
    std::printf(
        "{\"what\": \"%s\", \"weights\": \"%s\", \"tokens\": %ld, "
        "\"us\": %.2f, \"floor_us\": %.2f, \"fraction\": %.3f}\n",
        s.name, Name(dtype_), static_cast<long>(tokens), us, floor, floor / us);
    std::fflush(stdout);
  }

 private:
  double Blocks(const Shape& s) const {
    return dtype_ == DType::kU4 ? static_cast<double>(s.k) / 128 : 1;
  }
  MatMulParams Params(const Shape& s, int layer, int64_t tokens) const {
    MatMulParams p{
        .x = TensorView(x_, DType::kBF16, {tokens, s.k}),
        .w = TensorView(weights_ + layer * BytesOf(dtype_, s.n * s.k), dtype_, {s.n, s.k}),
        .bias = {},
        .out = TensorView(out_, DType::kBF16, {tokens, s.n})};
    p.w.scale_columns = dtype_ == DType::kU4 ? 128 : 0;
    p.w.scale_stride = s.n;
    p.w.scales = scales_ + layer * s.n * static_cast<int64_t>(Blocks(s));
    return p;
  }

  const DType dtype_;
  const GraphTimer timer_;
  const double copy_rate_;
  std::vector<BF16> x_values_;
  BF16* x_ = nullptr;
  float* scales_ = nullptr;
  char* weights_ = nullptr;
  void* out_ = nullptr;
  std::unique_ptr<cuda::MatMul> matmul_;
};

int Main(DType weights, std::vector<int64_t> tokens) {
  if (tokens.empty()) tokens = {1, 8, 16, 32, 64, 128, 256, 2048};
  std::sort(tokens.begin(), tokens.end());
  Bench bench(weights, tokens.back());
  for (const Shape& s : kShapes) {
    // The largest first: it chooses algorithms for all smaller ones.
    for (size_t i = tokens.size(); i-- > 0;) {
      if (!bench.Right(s, tokens[i])) return 1;
    }
    for (const int64_t t : tokens) bench.Time(s, t);
  }
  return 0;
}

}  // namespace
}  // namespace quire::gpu

int main(int argc, char** argv) {
  std::vector<int64_t> tokens;
  const bool eight = argc > 1 && std::strcmp(argv[1], "int8") == 0;
  const bool four = argc > 1 && std::strcmp(argv[1], "int4") == 0;
  for (int i = eight || four ? 2 : 1; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));
  return quire::gpu::Main(eight ? quire::DType::kU8 : quire::DType::kU4, tokens);
}
