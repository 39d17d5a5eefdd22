// Sample: the time of a row, and the time of one pass over its logits at the read bandwidth
// measured in this run as a fraction of it, on the cases that the tests check. A wrong token fails
// the program and is not timed.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/kernels/roofline.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/timed_cases.h"

namespace quire {
namespace {

bool any_wrong = false;

void Sample(benchmark::State& state, const SampleSetting& setting) {
  static const std::unique_ptr<Backend> backend =
      std::move(CreateCpuBackends(CpuOptions{.threads_total = 1})[0]);
  SampleCase c(setting, *backend);
  c.Run();
  if (!c.Right()) {
    any_wrong = true;
    state.SkipWithError("wrong result: not timed");
    return;
  }
  for (auto _ : state) c.Run();
  const double bytes = static_cast<double>(c.row().size_bytes());
  const double one_pass = bytes / ReadBandwidth(c.row().data(), c.row().size_bytes(), 1);
  using benchmark::Counter;
  state.counters["of_one_pass"] = Counter(one_pass, Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  for (const quire::SampleSetting& setting : quire::SampleSettings()) {
    const std::string name =
        "sample/V:" + std::to_string(setting.vocab) + "/" + std::string(setting.name);
    benchmark::RegisterBenchmark(
        name.c_str(), [setting](benchmark::State& state) { quire::Sample(state, setting); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return quire::any_wrong ? 1 : 0;
}
