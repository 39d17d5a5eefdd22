// MatMul: a decode step's products as a fraction of read bandwidth, a prompt's as a fraction of the
// FMA peak, both measured in this run, on the cases that the tests check. A wrong result fails the
// program and is not timed.
//
// arguments: threads, and 0, 1 or 2 for the generic, AVX2 or AVX-512 kernels
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "bench/kernels/roofline.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/timed_cases.h"

namespace quire {
namespace {

int threads = 2;
cpu::Isa isa = cpu::BestIsa();
bool any_wrong = false;

Backend& TheBackend() {
  static const std::unique_ptr<Backend> backend =
      std::move(CreateCpuBackends(CpuOptions{.threads_total = threads, .isa = isa})[0]);
  return *backend;
}

void MatMul(benchmark::State& state, const MatMulShape& shape) {
  MatMulCase c(shape, TheBackend());
  c.Run();
  if (!c.Right()) {
    any_wrong = true;
    state.SkipWithError("wrong result: not timed");
    return;
  }
  for (auto _ : state) c.Run();
  const auto bytes = static_cast<double>(shape.weight_bytes());
  using benchmark::Counter;
  const auto per_second = [](double amount, double peak) {
    return Counter(amount / peak, Counter::kIsIterationInvariantRate);
  };
  static const double fma_peak = FmaPeak(isa, threads);
  state.counters["GB/s"] = per_second(bytes, 1e9);
  state.counters["GFLOP/s"] = per_second(c.flops(), 1e9);
  state.counters["of_read"] =
      per_second(bytes, ReadBandwidth(c.weights().data(), c.weights().bytes(), threads));
  state.counters["of_fma_peak"] = per_second(c.flops(), fma_peak);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc > 1) quire::threads = std::atoi(argv[1]);
  if (argc > 2) quire::isa = static_cast<quire::cpu::Isa>(std::atoi(argv[2]));
  for (const quire::MatMulShape& shape : quire::MatMulShapes()) {
    benchmark::RegisterBenchmark(shape.name().c_str(), [shape](benchmark::State& state) {
      quire::MatMul(state, shape);
    })->UseRealTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  return quire::any_wrong ? 1 : 0;
}
