// The matrix products of Llama-3.1-8B on one device: each shape alone and all products of a step
// together, in graphs over the weights of 32 layers, next to the time of their bytes or their
// arithmetic at the device's rates. With "fp8" the layers are 8-bit with scales of rows, and the
// head stays bf16. Prints one JSON object per line. Usage: matmul_gpu_bench [fp8] [TOKENS...]
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/matmul/algorithm_search.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/matmul/tile_matmul.h"

namespace quire::cuda {
namespace {

constexpr double kBytesPerSecond = 4.3e12, kFlopsPerSecond = 788e12, kEightBitFlops = 1580e12;
constexpr int kLayers = 32;
constexpr int64_t kMaxLogitRows = 256;

struct Shape {
  const char* name;
  int64_t n, k;
  int layers;
  DType out;
};
constexpr Shape kShapes[] = {{"qkv", 6144, 4096, kLayers, DType::kBF16},
                             {"o", 4096, 4096, kLayers, DType::kBF16},
                             {"gate_up", 28672, 4096, kLayers, DType::kBF16},
                             {"down", 4096, 14336, kLayers, DType::kBF16},
                             {"lm_head", 128256, 4096, 1, DType::kF32}};
constexpr size_t kHead = 4;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Elements uniform in [-1, 1), or in [-256, 256) of 8 bits, with a period of 1,000,003, so that no
// cache benefits from the repetition.
template <typename T>
std::vector<T> Pattern(float amplitude) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-amplitude, amplitude);
  std::vector<T> pattern(1000003);
  for (T& v : pattern) v = FromFloat<T>(uniform(random));
  return pattern;
}
struct Patterns {
  const std::vector<BF16> wide = Pattern<BF16>(1);
  const std::vector<E4M3> narrow = Pattern<E4M3>(256);

  double At(DType type, size_t i) const {
    return static_cast<double>(type == DType::kE4M3 ? ToFloat(narrow[i % narrow.size()])
                                                    : ToFloat(wide[i % wide.size()]));
  }
};

template <typename T>
char* Filled(int64_t elements, const std::vector<T>& pattern) {
  const auto count = elements * static_cast<int64_t>(sizeof(T));
  char* data;
  CUDA_CHECK(cudaMalloc(&data, static_cast<size_t>(count)));
  int64_t done = std::min(count, static_cast<int64_t>(pattern.size() * sizeof(T)));
  CUDA_CHECK(cudaMemcpy(data, pattern.data(), static_cast<size_t>(done), cudaMemcpyHostToDevice));
  for (; done < count; done *= 2) {
    CUDA_CHECK(cudaMemcpy(data + done, data, static_cast<size_t>(std::min(done, count - done)),
                          cudaMemcpyDeviceToDevice));
  }
  CUDA_CHECK(cudaDeviceSynchronize());
  return data;
}

class Bench {
 public:
  Bench(DType layers, int64_t max_tokens) : layers_(layers) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&device_.stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaDeviceGetAttribute(&device_.num_sms, cudaDevAttrMultiProcessorCount, 0));
    for (size_t i = 0; i < std::size(kShapes); ++i) {
      const Shape& s = kShapes[i];
      const int64_t elements = s.layers * s.n * s.k;
      weights_[i] = TypeOf(i) == DType::kE4M3 ? Filled(elements, patterns_.narrow)
                                              : Filled(elements, patterns_.wide);
    }
    x_ = Filled(max_tokens * 14336, patterns_.wide);
    narrow_x_ = Filled(max_tokens * 14336, patterns_.narrow);
    scales_ = reinterpret_cast<float*>(
        Filled(std::max<int64_t>(max_tokens, 28672), std::vector<float>(28672, kScale)));
    CUDA_CHECK(cudaMalloc(&out_, static_cast<size_t>(max_tokens) * 28672 * 2 +
                                     static_cast<size_t>(kMaxLogitRows) * 128256 * 4));
    void* workspace;
    CUDA_CHECK(cudaMalloc(&workspace, static_cast<size_t>(MatMul::WorkspaceBytes())));
    matmul_ = std::make_unique<MatMul>(device_, workspace, "");
    means_.device = device_;
    means_.clusters = PrepareTileMatMul(device_);
    CUDA_CHECK(cublasLtCreate(&means_.lt.handle));
    means_.lt.workspace = workspace;
    means_.lt.workspace_bytes = static_cast<size_t>(MatMul::WorkspaceBytes());
    means_.lt.stream = device_.stream;
  }

  void CopyCeiling() {
    const size_t bytes = size_t{3} << 29;  // twice as many fit in the weights of 8 bits
    // Not in a graph, where another engine copies.
    cudaEvent_t begin, end;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    float ms = 0;
    for (int i = 0; i < 3; ++i) {
      CUDA_CHECK(cudaEventRecord(begin, device_.stream));
      CUDA_CHECK(cudaMemcpyAsync(weights_[2], weights_[2] + bytes, bytes, cudaMemcpyDeviceToDevice,
                                 device_.stream));
      CUDA_CHECK(cudaEventRecord(end, device_.stream));
      CUDA_CHECK(cudaEventSynchronize(end));
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    std::printf("{\"what\": \"copy\", \"gb_per_s\": %.0f}\n",
                2 * static_cast<double>(bytes) / static_cast<double>(ms) / 1e6);
  }

  // False if a sampled output differs from float64.
  bool Right(int64_t tokens) {
    for (size_t i = 0; i < std::size(kShapes); ++i) {
      const MatMulParams p = Params(i, 0, Tokens(i, tokens));
      matmul_->Run(p);
      CUDA_CHECK(cudaDeviceSynchronize());
      std::minstd_rand random(3);
      for (int sample = 0; sample < 50; ++sample) {
        const int64_t t = static_cast<int64_t>(random()) % p.x.dim[0];
        const int64_t row = static_cast<int64_t>(random()) % p.w.dim[0];
        if (!Right(p, t, row)) {
          std::fprintf(stderr, "%s: token %ld row %ld is wrong: not timed\n", kShapes[i].name,
                       static_cast<long>(t), static_cast<long>(row));
          return false;
        }
      }
    }
    return true;
  }

  void OneShape(size_t i, int64_t tokens) {
    const Shape& s = kShapes[i];
    const int64_t t = Tokens(i, tokens);
    const int times = s.layers == 1 ? 4 : s.layers;
    // The time of a search's choice for exactly this number of tokens, next to MatMul's.
    choices_[i] = AlgorithmSearch(Params(i, 0, t), means_).Fastest(t);
    const auto report = [&](const char* kernel, double ms) {
      const double floor = Floor(i, t), us = ms * 1000 / times;
      std::printf(
          "{\"what\": \"%s\", \"tokens\": %ld, \"kernel\": \"%s\", \"us\": %.2f, "
          "\"floor_us\": %.2f, \"fraction\": %.3f, \"search_us\": %.2f, \"cut\": \"%d/%d/%d\"}\n",
          s.name, static_cast<long>(t), kernel, us, floor * 1e6, floor * 1e6 / us,
          static_cast<double>(choices_[i].microseconds), choices_[i].cut.rows,
          choices_[i].cut.tokens, choices_[i].cut.split);
    };
    report(t <= 16 ? "own" : "chosen", Milliseconds(11, [&] {
             for (int layer = 0; layer < times; ++layer) {
               matmul_->Run(Params(i, layer % s.layers, t));
             }
           }));
    report("searched", Milliseconds(11, [&] {
             for (int layer = 0; layer < times; ++layer) {
               CUDA_CHECK(Enqueue(Params(i, layer % s.layers, t), choices_[i], means_)
                              ? cudaSuccess
                              : cudaErrorUnknown);
             }
           }));
  }

  void WholeStep(int64_t tokens) {
    double floor = 0;
    for (size_t i = 0; i < std::size(kShapes); ++i) {
      floor += Floor(i, Tokens(i, tokens)) * kShapes[i].layers * 1000;
    }
    const auto step = [&](const std::function<void(size_t, int)>& run) {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (size_t i = 0; i < kHead; ++i) run(i, layer);
      }
      run(kHead, 0);
    };
    const auto report = [&](const char* kernel, double ms) {
      std::printf(
          "{\"what\": \"step\", \"tokens\": %ld, \"kernel\": \"%s\", \"ms\": %.4f, "
          "\"floor_ms\": %.4f, \"fraction\": %.3f}\n",
          static_cast<long>(tokens), kernel, ms, floor, floor / ms);
    };
    report(tokens <= 16 ? "own" : "chosen", Milliseconds(11, [&] {
             step([&](size_t i, int layer) { matmul_->Run(Params(i, layer, Tokens(i, tokens))); });
           }));
    if (tokens > kMaxLogitRows) return;
    report("searched", Milliseconds(11, [&] {
             step([&](size_t i, int layer) {
               CUDA_CHECK(Enqueue(Params(i, layer, Tokens(i, tokens)), choices_[i], means_)
                              ? cudaSuccess
                              : cudaErrorUnknown);
             });
           }));
  }

  // Host time of a product whose algorithm is known, and of the first product of a shape.
  void HostTime(int64_t tokens) {
    double begin = Seconds();
    for (size_t i = 0; i < std::size(kShapes); ++i) matmul_->Run(Params(i, 0, Tokens(i, tokens)));
    CUDA_CHECK(cudaDeviceSynchronize());
    const double first = Seconds() - begin;
    begin = Seconds();
    constexpr int kCalls = 200;
    for (int i = 0; i < kCalls; ++i) matmul_->Run(Params(1, 0, std::min<int64_t>(tokens, 17)));
    const double later = (Seconds() - begin) / kCalls;
    CUDA_CHECK(cudaDeviceSynchronize());
    begin = Seconds();
    for (int i = 0; i < kCalls; ++i) LtProduct(Params(1, 0, tokens));
    const double describe = (Seconds() - begin) / kCalls;
    std::printf(
        "{\"what\": \"host\", \"tokens\": %ld, \"first_ms\": %.1f, \"later_us\": %.2f, "
        "\"describe_us\": %.3f}\n",
        static_cast<long>(tokens), first * 1e3, later * 1e6, describe * 1e6);
  }

 private:
  static int64_t Tokens(size_t i, int64_t tokens) {
    return i == kHead ? (tokens > kMaxLogitRows ? 1 : tokens) : tokens;
  }
  DType TypeOf(size_t i) const { return i == kHead ? DType::kBF16 : layers_; }
  double Floor(size_t i, int64_t tokens) const {
    const auto n = static_cast<double>(kShapes[i].n), k = static_cast<double>(kShapes[i].k);
    const auto t = static_cast<double>(tokens);
    const auto size = static_cast<double>(SizeOf(TypeOf(i)));
    const double bytes =
        size * (n * k + t * k) + t * n * static_cast<double>(SizeOf(kShapes[i].out));
    const double flops = TypeOf(i) == DType::kE4M3 ? kEightBitFlops : kFlopsPerSecond;
    return std::max(bytes / kBytesPerSecond, 2 * t * n * k / flops);
  }

  MatMulParams Params(size_t i, int layer, int64_t tokens) const {
    const Shape& s = kShapes[i];
    const DType type = TypeOf(i);
    const bool narrow = type == DType::kE4M3;
    char* const w = weights_[i] + layer * s.n * s.k * static_cast<int64_t>(SizeOf(type));
    MatMulParams p{.x = TensorView(narrow ? narrow_x_ : x_, type, {tokens, s.k}),
                   .w = TensorView(w, type, {s.n, s.k}),
                   .bias = {},
                   .out = TensorView(out_, s.out, {tokens, s.n})};
    if (narrow) p.x.scales = p.w.scales = scales_;
    return p;
  }

  bool Right(const MatMulParams& p, int64_t t, int64_t row) {
    double sum = 0, size = 0;
    for (int64_t c = 0; c < p.w.dim[1]; ++c) {
      const auto x = static_cast<size_t>(t * p.w.dim[1] + c);
      const auto w = static_cast<size_t>(row * p.w.dim[1] + c);
      double product = patterns_.At(p.x.dtype, x) * patterns_.At(p.w.dtype, w);
      if (p.w.scales != nullptr) product *= kScale * kScale;
      sum += product;
      size += std::abs(product);
    }
    float got;
    if (p.out.dtype == DType::kF32) {
      CUDA_CHECK(cudaMemcpy(&got, p.out.row<float>(t) + row, 4, cudaMemcpyDeviceToHost));
    } else {
      BF16 bits;
      CUDA_CHECK(cudaMemcpy(&bits, p.out.row<BF16>(t) + row, 2, cudaMemcpyDeviceToHost));
      got = ToFloat(bits);
    }
    // Matrix units add 8-bit products with 13 bits of fraction.
    const double of_size = p.w.scales != nullptr ? 0x1p-13 : 1e-6;
    return std::abs(got - sum) <= 0x1p-8 * std::abs(sum) + of_size * size;
  }

  // Median time of the replays of a graph of `enqueue`.
  double Milliseconds(int replays, const std::function<void()>& enqueue) {
    enqueue();  // chooses algorithms outside the capture
    CUDA_CHECK(cudaStreamSynchronize(device_.stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamBeginCapture(device_.stream, cudaStreamCaptureModeThreadLocal));
    enqueue();
    CUDA_CHECK(cudaStreamEndCapture(device_.stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < replays + 2; ++i) {
      CUDA_CHECK(cudaEventRecord(begin, device_.stream));
      CUDA_CHECK(cudaGraphLaunch(exec, device_.stream));
      CUDA_CHECK(cudaEventRecord(end, device_.stream));
      CUDA_CHECK(cudaEventSynchronize(end));
      float ms;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 2) times.push_back(ms);
    }
    CUDA_CHECK(cudaEventDestroy(begin));
    CUDA_CHECK(cudaEventDestroy(end));
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
    std::nth_element(times.begin(), times.begin() + replays / 2, times.end());
    return times[static_cast<size_t>(replays / 2)];
  }

  static constexpr float kScale = 0x1p-8f;

  const DType layers_;
  Device device_;
  const Patterns patterns_;
  std::array<char*, std::size(kShapes)> weights_{};
  char *x_ = nullptr, *narrow_x_ = nullptr;
  float* scales_ = nullptr;
  void* out_ = nullptr;
  std::unique_ptr<MatMul> matmul_;
  ProductMeans means_;
  std::array<Choice, std::size(kShapes)> choices_;
};

int Main(DType layers, std::vector<int64_t> tokens) {
  if (tokens.empty()) tokens = {1, 8, 16, 64, 256, 2048, 8192};
  Bench bench(layers, *std::max_element(tokens.begin(), tokens.end()));
  // The largest first, as in the start of a server: it chooses algorithms for all smaller ones.
  std::sort(tokens.rbegin(), tokens.rend());
  for (const int64_t t : tokens) bench.HostTime(t);
  for (const int64_t t : tokens) {
    if (!bench.Right(t)) return 1;
  }
  bench.CopyCeiling();
  // The smallest first: long products heat the device, and its clocks take a while to recover.
  std::sort(tokens.begin(), tokens.end());
  for (const int64_t t : tokens) {
    for (size_t i = 0; i < std::size(kShapes); ++i) {
      if (i != kHead || t <= kMaxLogitRows) bench.OneShape(i, t);
    }
    bench.WholeStep(t);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace quire::cuda

int main(int argc, char** argv) {
  std::vector<int64_t> tokens;
  const bool narrow = argc > 1 && std::strcmp(argv[1], "fp8") == 0;
  for (int i = narrow ? 2 : 1; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));
  return quire::cuda::Main(narrow ? quire::DType::kE4M3 : quire::DType::kBF16, tokens);
}
