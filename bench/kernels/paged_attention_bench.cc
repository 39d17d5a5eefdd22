// PagedAttention: decode as a fraction of the bandwidth of reading its keys and values, prefill as
// a fraction of the FMA peak, both measured in this run, on the cases that the tests check. A wrong
// result fails the program and is not timed.
//
// argument: threads
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "bench/kernels/roofline.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/timed_cases.h"

namespace quire {
namespace {

int threads = 2;
bool any_wrong = false;

void Attention(benchmark::State& state, const AttentionShape& shape) {
  static const std::unique_ptr<Backend> backend =
      std::move(CreateCpuBackends(CpuOptions{.threads_total = threads})[0]);
  AttentionCase c(shape, *backend);
  c.Run();
  if (!c.Right()) {
    any_wrong = true;
    state.SkipWithError("wrong result: not timed");
    return;
  }
  for (auto _ : state) c.Run();
  using benchmark::Counter;
  const auto per_second = [](double amount, double peak) {
    return Counter(amount / peak, Counter::kIsIterationInvariantRate);
  };
  static const double fma_peak = FmaPeak(cpu::BestIsa(), threads);
  state.counters["GB/s"] = per_second(shape.kv_bytes(), 1e9);
  state.counters["of_read"] =
      per_second(shape.kv_bytes(), ReadBandwidth(c.pool().data(), c.pool().bytes(), threads));
  state.counters["GFLOP/s"] = per_second(shape.flops(), 1e9);
  state.counters["of_fma_peak"] = per_second(shape.flops(), fma_peak);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc == 2) quire::threads = std::atoi(argv[1]);
  for (const quire::AttentionShape& shape : quire::AttentionShapes()) {
    benchmark::RegisterBenchmark(shape.name().c_str(), [shape](benchmark::State& state) {
      quire::Attention(state, shape);
    })->UseRealTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  return quire::any_wrong ? 1 : 0;
}
