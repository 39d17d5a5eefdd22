// The choice of a step's prompt tokens, and the times between tokens and to first tokens: the real
// scheduler under six loads, with steps always filled up to a limit, with capped steps beside rows,
// and with prompts that are paced (schedule/pace/prompt_pace.h). The worker is a clock: the times
// of steps of an 8B model in bf16 on one H200, as bench/results/gpu.json has them, are
// interpolated, so they bend where the scheduler's fit is straight. Two steps are in flight.
// Nothing depends on this machine.
//
// Prints one JSON object per load and setting; times in milliseconds, tokens per second.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/values/step_cost.h"
#include "engine/worker/fake/null_worker.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr int32_t kDepth = 2;
constexpr int32_t kBlockSize = 64;
constexpr int32_t kPoolTokens = 700'000;  // of the 8B model on 141 GB

struct Load {
  const char* name;
  double per_second;  // Poisson; 0: all requests come at the start
  int32_t requests, prompt, output, rows;
};
constexpr Load kLoads[] = {
    {"2048/128 offline", 0, 512, 2048, 128, 512}, {"1000/1000 offline", 0, 1536, 1000, 1000, 512},
    {"128/2048 offline", 0, 512, 128, 2048, 512}, {"1024/256, 8/s", 8, 1500, 1024, 256, 256},
    {"1024/256, 16/s", 16, 1500, 1024, 256, 256}, {"1024/256, 24/s", 24, 1500, 1024, 256, 256},
};

struct Setting {
  const char* name;
  int32_t limit;
  int32_t mixed_step;
  bool paced;
};
constexpr int32_t kMixedStep = SchedulerConfig{}.mixed_step_tokens;
constexpr Setting kSettings[] = {
    {"512", 512, 0, false},
    {"1024", 1024, 0, false},
    {"2048", 2048, 0, false},
    {"4096", 4096, 0, false},
    {"capped", 2048, kMixedStep, false},
    {"capped, 4096", 4096, kMixedStep, false},
    {"paced", 2048, kMixedStep, true},
    {"paced, not capped", 2048, 0, true},
};

// All but attention, in milliseconds, by the tokens of the step: decode steps of 1 to 256 rows,
// mixed steps of 256 to 2048 tokens, prefills beyond, each less its attention.
struct Point {
  double tokens, ms;
};
constexpr Point kProducts[] = {{1, 3.79},    {8, 3.95},   {64, 4.63},   {256, 7.4},   {320, 8.5},
                               {448, 11.8},  {576, 12.9}, {704, 15.7},  {1024, 22.4}, {1536, 33.2},
                               {2048, 43.2}, {4096, 84},  {8192, 164.5}};
constexpr double kContextMs = 32e-6;         // 131,072 bytes of K and V a token, at 4.1 TB/s
constexpr double kReadMs = 524'288e-12 * 2;  // 4 * 4096 * 32 operations, at 500 TFLOP/s

double StepMs(const StepPlan& plan) {
  StepShape shape;
  for (const RowWork& work : plan.work) shape.Add(work.start, work.count);
  const double tokens = plan.num_tokens;
  const auto after = std::find_if(std::begin(kProducts) + 1, std::end(kProducts) - 1,
                                  [&](const Point& point) { return tokens <= point.tokens; });
  const Point &a = after[-1], &b = after[0];
  const double products = a.ms + (b.ms - a.ms) * (tokens - a.tokens) / (b.tokens - a.tokens);
  return products + kContextMs * shape.contexts + kReadMs * shape.prompt_reads;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Quantile(std::vector<double> values, double q) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(q * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

class Simulation {
 public:
  Simulation(const Load& load, const Setting& setting)
      : load_(load), setting_(setting), scheduler_(Config(load, setting)), worker_(1000) {}

  void Run() {
    while (whole_ms_.size() < static_cast<size_t>(load_.requests)) Turn();
    Print();
  }

 private:
  struct InFlight {
    StepPlan plan;
    int64_t end_ns = 0;
  };

  static SchedulerConfig Config(const Load& load, const Setting& setting) {
    SchedulerConfig config;
    config.block_size = kBlockSize;
    config.max_model_len = 8192;
    config.num_blocks = kPoolTokens / kBlockSize;
    config.max_num_seqs = load.rows;
    config.max_num_batched_tokens = std::max(setting.limit, load.rows);
    config.max_num_queued_reqs = load.requests;
    config.mixed_step_tokens = setting.mixed_step;
    config.pace_prompts = setting.paced;
    return config;
  }

  void Add() {
    auto request = std::make_unique<Request>();
    request->id = ++added_;
    request->prompt.resize(static_cast<size_t>(load_.prompt));
    for (int32_t& token : request->prompt) token = static_cast<int32_t>(random_() % 1000);
    request->sampling.max_tokens = load_.output;
    request->arrival_ns = next_ns_;
    scheduler_.Add(std::move(request));
    if (load_.per_second == 0) return;
    std::exponential_distribution<double> gap(load_.per_second);
    next_ns_ += static_cast<int64_t>(1e9 * gap(random_));
  }

  bool MoreCome() const { return added_ < static_cast<RequestId>(load_.requests); }

  // Plans what can be planned at this moment, then goes on to the next event.
  void Turn() {
    while (MoreCome() && next_ns_ <= now_ns_) Add();
    while (steps_.size() < kDepth) {
      InFlight step;
      if (!scheduler_.Schedule(now_ns_, step.plan, events_)) break;
      const int64_t begin_ns = steps_.empty() ? now_ns_ : std::max(now_ns_, steps_.back().end_ns);
      if (steps_.empty()) idle_until_ns_ = now_ns_;
      step.end_ns = begin_ns + static_cast<int64_t>(1e6 * StepMs(step.plan));
      steps_.push_back(std::move(step));
    }
    if (MoreCome() && (steps_.empty() || next_ns_ < steps_.front().end_ns)) {
      now_ns_ = std::max(now_ns_, next_ns_);
      return;
    }
    CHECK(!steps_.empty());
    now_ns_ = steps_.front().end_ns;
    worker_.Run(steps_.front().plan, result_);
    result_.started_ns = idle_until_ns_;
    result_.finished_ns = now_ns_;
    scheduler_.Retire(result_, now_ns_, events_);
    const SchedulerLoad load = scheduler_.Load();
    errors_.push_back(load.step_cost_error);
    budgets_.push_back(load.prompt_budget);
    steps_.pop_front();
    for (const TokenEvent& token : events_.tokens) Count(token);
    for (const FinishEvent& end : events_.finishes) Count(end);
    events_ = {};
  }

  static double Ms(int64_t from_ns, int64_t to_ns) {
    return static_cast<double>(to_ns - from_ns) * 1e-6;
  }

  void Count(const TokenEvent& token) {
    int64_t& last_ns = last_ns_[token.id];
    if (token.index > 0) gap_ms_.push_back(Ms(last_ns, now_ns_));
    last_ns = now_ns_;
  }

  void Count(const FinishEvent& end) {
    const auto& times = end.timings;
    first_ms_.push_back(Ms(times.arrival_ns, times.first_token_ns));
    each_ms_.push_back(Ms(times.first_token_ns, now_ns_) / (load_.output - 1));
    whole_ms_.push_back(Ms(times.arrival_ns, now_ns_));
  }

  void Print() const {
    std::printf(
        "{\"benchmark\": \"pace\", \"load\": \"%s\", \"setting\": \"%s\", "
        "\"tokens_per_second\": %.0f, \"each_mean_ms\": %.2f, \"each_p50_ms\": %.2f, "
        "\"each_p99_ms\": %.2f, \"gap_p99_ms\": %.1f, \"first_mean_ms\": %.0f, "
        "\"first_p99_ms\": %.0f, \"whole_mean_ms\": %.0f, \"budget_p50\": %.0f, "
        "\"prediction_error\": %.3f}\n",
        load_.name, setting_.name, load_.requests * load_.output / (double(now_ns_) * 1e-9),
        Mean(each_ms_), Quantile(each_ms_, 0.5), Quantile(each_ms_, 0.99), Quantile(gap_ms_, 0.99),
        Mean(first_ms_), Quantile(first_ms_, 0.99), Mean(whole_ms_), Quantile(budgets_, 0.5),
        Mean(errors_));
    std::fflush(stdout);
  }

  const Load load_;
  const Setting setting_;
  Scheduler scheduler_;
  NullWorker worker_;
  std::mt19937_64 random_{11};
  std::deque<InFlight> steps_;
  SchedulerEvents events_;
  StepResult result_;
  RequestId added_ = 0;
  int64_t now_ns_ = 1;
  int64_t next_ns_ = 1;  // the next request comes
  int64_t idle_until_ns_ = 1;
  std::unordered_map<RequestId, int64_t> last_ns_;  // a request's last token
  std::vector<double> gap_ms_, first_ms_, each_ms_, whole_ms_, errors_, budgets_;
};

}  // namespace
}  // namespace quire

int main() {
  for (const quire::Load& load : quire::kLoads) {
    for (const quire::Setting& setting : quire::kSettings) quire::Simulation(load, setting).Run();
  }
}
