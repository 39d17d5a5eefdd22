// MatMul: a decode step's products as a fraction of read bandwidth, a prompt's as a fraction of the
// FMA peak, both measured in this run. Results are compared with double arithmetic before anything
// is timed.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "bench/kernels/roofline.h"
#include "kernels/cpu/cpu_backend.h"

namespace quire {
namespace {

// The arguments: threads, and 0, 1 or 2 for the generic, AVX2 or AVX-512 kernels.
int threads = 2;
cpu::Isa isa = cpu::BestIsa();

Backend& TheBackend() {
  static const std::unique_ptr<Backend> backend =
      std::move(CreateCpuBackends(CpuOptions{.threads_total = threads, .isa = isa})[0]);
  return *backend;
}

template <typename T>
void FillRandom(Buffer& buffer) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> pattern(1 << 16);
  for (T& x : pattern) x = FromFloat<T>(uniform(random));
  T* to = static_cast<T*>(buffer.data());
  const size_t count = buffer.bytes() / sizeof(T);
  for (size_t i = 0; i < count; ++i) to[i] = pattern[(i * 40503u >> 3) % pattern.size()];
}

// Whether every 97th element is within the rounding of k products.
bool Right(const TensorView& x, const TensorView& w, const TensorView& out) {
  const int64_t k = x.dim[1];
  for (int64_t i = 0; i < out.size(); i += 97) {
    const int64_t t = i / out.dim[1], j = i % out.dim[1];
    double sum = 0, size = 0;
    for (int64_t c = 0; c < k; ++c) {
      const double weight =
          w.dtype == DType::kBF16 ? ToFloat(w.row<BF16>(j)[c]) : w.row<float>(j)[c];
      sum += x.row<float>(t)[c] * weight;
      size += std::abs(x.row<float>(t)[c] * weight);
    }
    const double bound = (static_cast<double>(k) / 16 + 7) * 0x1p-24 * size;
    if (std::abs(out.row<float>(t)[j] - sum) > bound) return false;
  }
  return true;
}

struct Shape {
  int64_t tokens, k, n;
  DType dtype;
};

void MatMul(benchmark::State& state, const Shape& s) {
  Backend& backend = TheBackend();
  const size_t weight_bytes = static_cast<size_t>(s.n * s.k) * SizeOf(s.dtype);
  // Weights of a model larger than the caches: several matrices in turn, 256 MB together.
  const bool cached = weight_bytes <= (4u << 20);
  const size_t copies = cached ? 1 : 1 + (256u << 20) / weight_bytes;
  Buffer weights = backend.Allocate(weight_bytes * copies);
  Buffer x = backend.Allocate(static_cast<size_t>(s.tokens * s.k) * 4);
  Buffer out = backend.Allocate(static_cast<size_t>(s.tokens * s.n) * 4);
  if (s.dtype == DType::kBF16) {
    FillRandom<BF16>(weights);
  } else {
    FillRandom<float>(weights);
  }
  FillRandom<float>(x);
  const TensorView x_view(x.data(), DType::kF32, {s.tokens, s.k});
  const TensorView out_view(out.data(), DType::kF32, {s.tokens, s.n});
  size_t turn = 0;
  TensorView w;
  const auto run = [&] {
    w = TensorView(static_cast<char*>(weights.data()) + turn * weight_bytes, s.dtype, {s.n, s.k});
    turn = (turn + 1) % copies;
    backend.MatMul({.x = x_view, .w = w, .out = out_view});
  };
  run();
  if (!Right(x_view, w, out_view)) {
    state.SkipWithError("wrong result: not timed");
    return;
  }
  for (auto _ : state) run();
  const double bytes = static_cast<double>(weight_bytes), flops = 2.0 * s.tokens * s.k * s.n;
  using benchmark::Counter;
  const auto per_second = [](double amount, double peak) {
    return Counter(amount / peak, Counter::kIsIterationInvariantRate);
  };
  state.counters["GB/s"] = per_second(bytes, 1e9);
  state.counters["GFLOP/s"] = per_second(flops, 1e9);
  state.counters["of_read"] =
      per_second(bytes, ReadBandwidth(weights.data(), weights.bytes(), threads));
  static const double fma_peak = FmaPeak(isa, threads);
  state.counters["of_fma_peak"] = per_second(flops, fma_peak);
}

void Register(const Shape& s) {
  const std::string name = "matmul/T:" + std::to_string(s.tokens) + "/k:" + std::to_string(s.k) +
                           "/n:" + std::to_string(s.n) + "/" + Name(s.dtype);
  benchmark::RegisterBenchmark(name.c_str(), [s](benchmark::State& state) {
    MatMul(state, s);
  })->UseRealTime();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  using quire::DType;
  for (int64_t tokens : {1, 4, 16, 64, 512}) {
    quire::Register({tokens, 256, 1024, DType::kF32});
    quire::Register({tokens, 256, 1024, DType::kBF16});
    quire::Register({tokens, 2048, 8192, DType::kBF16});
  }
  quire::Register({1, 4096, 14336, DType::kBF16});
  quire::Register({1, 4096, 14336, DType::kF32});
  quire::Register({64, 4096, 4096, DType::kBF16});
  benchmark::Initialize(&argc, argv);
  if (argc > 1) quire::threads = std::atoi(argv[1]);
  if (argc > 2) quire::isa = static_cast<quire::cpu::Isa>(std::atoi(argv[2]));
  benchmark::RunSpecifiedBenchmarks();
}
