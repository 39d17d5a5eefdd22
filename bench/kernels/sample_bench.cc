// Sample: microseconds a row, and beside it the fraction of the time that one plain pass over the
// row's logits takes at the read bandwidth measured in this run. The token is checked before
// anything is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "bench/kernels/roofline.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/sampling_math.h"

namespace quire {
namespace {

// The draw by its definition without filters, in double.
int32_t Expected(const std::vector<float>& row, const SampleRow& params, int32_t position) {
  double best = -INFINITY;
  int32_t token = -1;
  for (size_t i = 0; i < row.size(); ++i) {
    const uint32_t id = static_cast<uint32_t>(i);
    const double noise = GumbelNoise(params.seed, static_cast<uint32_t>(position), id);
    const double score =
        params.temperature == 0 ? double{row[i]} : row[i] / double{params.temperature} + noise;
    if (score > best) {
      best = score;
      token = static_cast<int32_t>(i);
    }
  }
  return token;
}

void Sample(benchmark::State& state, int64_t vocab, const SampleRow& params) {
  static const std::unique_ptr<Backend> backend =
      std::move(CreateCpuBackends(CpuOptions{.threads_total = 1})[0]);
  std::minstd_rand random(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> row(vocab), scratch(vocab);
  for (float& l : row) l = normal(random);
  std::vector<int32_t> tokens(1000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % vocab);
  SampleJob job{.params = params, .tokens = tokens.data(), .num_prompt = 500, .num_known = 1000};
  SampleResult result;
  const auto run = [&] {
    std::memcpy(scratch.data(), row.data(), row.size() * sizeof(float));
    backend->Sample({.logits = TensorView(scratch.data(), DType::kF32, {1, vocab}),
                     .jobs = &job,
                     .results = &result});
  };
  run();
  const bool filtered =
      params.top_k > 0 || params.top_p < 1 || params.min_p > 0 || params.repetition_penalty != 1;
  if (result.nonfinite != 0 || (!filtered && result.token != Expected(row, params, 1000))) {
    state.SkipWithError("wrong result: not timed");
    return;
  }
  for (auto _ : state) run();
  const double one_pass =
      static_cast<double>(vocab) * 4 / ReadBandwidth(row.data(), row.size() * sizeof(float), 1);
  using benchmark::Counter;
  state.counters["of_one_pass"] = Counter(one_pass, Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  struct Setting {
    const char* name;
    quire::SampleRow params;
  };
  const Setting settings[] = {
      {"greedy", {.temperature = 0}},
      {"temperature", {.temperature = 0.8f, .seed = 5}},
      {"top_k", {.temperature = 0.8f, .top_k = 50, .seed = 5}},
      {"top_p", {.temperature = 0.8f, .top_p = 0.95f, .seed = 5}},
      {"top_k_p", {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .seed = 5}},
      {"min_p", {.temperature = 0.8f, .min_p = 0.05f, .seed = 5}},
      {"penalties", {.temperature = 0.8f, .repetition_penalty = 1.1f, .seed = 5}},
  };
  for (int64_t vocab : {2048, 131072}) {
    for (const Setting& s : settings) {
      const std::string name = "sample/V:" + std::to_string(vocab) + "/" + s.name;
      const quire::SampleRow params = s.params;
      benchmark::RegisterBenchmark(name.c_str(), [vocab, params](benchmark::State& state) {
        quire::Sample(state, vocab, params);
      });
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
