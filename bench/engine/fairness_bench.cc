// The cost of one tenant's flood to another: the light tenant's time to first token and its whole
// requests, alone and beside 10,000 queued requests. The scheduler is the real one; the worker is a
// clock: a step takes a fixed time and a time for each token, and two steps are in flight. So the
// figures do not depend on the machine. Prints one JSON object per line; exits with 1 if the light
// tenant's p99 beside the flood exceeds 1.3 times its p99 alone and one chunk.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/worker/fake/null_worker.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr TenantId kFlood = 1, kLight = 2;
constexpr int32_t kRows = 64;
constexpr int32_t kStepTokens = 2048;
constexpr int32_t kDepth = 2;
constexpr int64_t kStepNs = 10'000'000;
constexpr int64_t kTokenNs = 15'000;
constexpr int kLightRequests = 1000;
constexpr size_t kFloodRequests = 10'000;

struct Shape {
  const char* name;
  int32_t flood_prompt, flood_output;
  int32_t light_prompt, light_output;
};
constexpr Shape kShapes[] = {
    {"chat", 512, 128, 128, 32},
    {"long_prompts", 8000, 64, 128, 32},
    {"long_outputs", 128, 1500, 128, 32},
    {"short", 64, 8, 64, 8},
};

struct Figures {
  std::vector<double> first_ms, whole_ms;
  double flood_tokens_per_second = 0;
  int64_t preempted = 0;
};

double Quantile(std::vector<double> values, double q) {
  const size_t i = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(i), values.end());
  return values[i];
}

class Simulation {
 public:
  Simulation(const Shape& shape, bool flood, bool one_tenant)
      : shape_(shape),
        flood_(flood),
        one_tenant_(one_tenant),
        scheduler_(Config()),
        worker_(1000) {}

  Figures Run() {
    next_light_ns_ = 1;
    while (figures_.whole_ms.size() < kLightRequests) Turn();
    figures_.flood_tokens_per_second =
        static_cast<double>(flood_tokens_) / (static_cast<double>(now_ns_) * 1e-9);
    return std::move(figures_);
  }

 private:
  struct InFlight {
    StepPlan plan;
    int64_t end_ns = 0;
  };

  static SchedulerConfig Config() {
    SchedulerConfig config;
    config.block_size = 16;
    config.max_model_len = 8192;
    config.num_blocks = kRows * 1024 / 16 + 4000;
    config.max_num_seqs = kRows;
    config.max_num_batched_tokens = kStepTokens;
    config.pace_prompts = true;
    config.max_num_queued_reqs = static_cast<int32_t>(2 * kFloodRequests);
    return config;
  }

  void Add(TenantId tenant, int32_t prompt, int32_t output) {
    auto request = std::make_unique<Request>();
    request->id = next_id_++;
    request->prompt.resize(static_cast<size_t>(prompt));
    for (int32_t& token : request->prompt) token = static_cast<int32_t>(random_() % 1000);
    request->sampling.max_tokens = output;
    request->tenant = one_tenant_ ? kFlood : tenant;
    request->arrival_ns = now_ns_;
    if (tenant == kLight) light_ = request->id;
    scheduler_.Add(std::move(request));
  }

  int32_t Around(int32_t mean) {
    return static_cast<int32_t>(mean / 2 + random_() % static_cast<uint64_t>(mean + 1));
  }

  // Plans what can be planned at this moment, then goes on to the next event.
  void Turn() {
    while (flood_ && queued_flood_ < kFloodRequests) {
      Add(kFlood, std::min(Around(shape_.flood_prompt), 8000), Around(shape_.flood_output));
      ++queued_flood_;
    }
    if (light_ == 0 && now_ns_ >= next_light_ns_) {
      Add(kLight, Around(shape_.light_prompt), shape_.light_output);
    }
    while (steps_.size() < kDepth) {
      InFlight step;
      if (!scheduler_.Schedule(now_ns_, step.plan, events_)) break;
      figures_.preempted += events_.preempted;
      events_ = {};
      const int64_t begin_ns = steps_.empty() ? now_ns_ : std::max(now_ns_, steps_.back().end_ns);
      step.end_ns = begin_ns + kStepNs + step.plan.num_tokens * kTokenNs;
      steps_.push_back(std::move(step));
    }
    const bool light_next =
        light_ == 0 && (steps_.empty() || next_light_ns_ < steps_.front().end_ns);
    if (light_next) {
      now_ns_ = std::max(now_ns_, next_light_ns_);
      return;
    }
    CHECK(!steps_.empty());
    now_ns_ = steps_.front().end_ns;
    worker_.Run(steps_.front().plan, result_);
    result_.started_ns = last_end_ns_;
    result_.finished_ns = last_end_ns_ = now_ns_;
    scheduler_.Retire(result_, now_ns_, events_);
    steps_.pop_front();
    for (const TokenEvent& token : events_.tokens) flood_tokens_ += token.id != light_;
    for (const FinishEvent& end : events_.finishes) Finished(end);
    events_ = {};
  }

  void Finished(const FinishEvent& end) {
    if (end.id != light_) {
      --queued_flood_;
      return;
    }
    const auto ms = [](int64_t from, int64_t to) { return static_cast<double>(to - from) * 1e-6; };
    figures_.first_ms.push_back(ms(end.timings.arrival_ns, end.timings.first_token_ns));
    figures_.whole_ms.push_back(ms(end.timings.arrival_ns, end.timings.finished_ns));
    light_ = 0;
    next_light_ns_ = now_ns_ + static_cast<int64_t>(random_() % 500'000'000);
  }

  const Shape shape_;
  const bool flood_;
  const bool one_tenant_;
  Scheduler scheduler_;
  NullWorker worker_;
  std::mt19937_64 random_{11};
  std::deque<InFlight> steps_;
  SchedulerEvents events_;
  StepResult result_;
  RequestId next_id_ = 1;
  RequestId light_ = 0;  // the light request that is live
  int64_t now_ns_ = 1;
  int64_t next_light_ns_ = 0;
  int64_t last_end_ns_ = 0;
  size_t queued_flood_ = 0;
  int64_t flood_tokens_ = 0;
  Figures figures_;
};

void Print(const Shape& shape, const char* side, const Figures& figures) {
  std::printf(
      "{\"benchmark\": \"fairness\", \"shape\": \"%s\", \"side\": \"%s\", "
      "\"first_token_p50_ms\": %.1f, \"first_token_p99_ms\": %.1f, \"request_p50_ms\": %.1f, "
      "\"request_p99_ms\": %.1f, \"flood_tokens_per_second\": %.0f, \"preemptions\": %lld}\n",
      shape.name, side, Quantile(figures.first_ms, 0.5), Quantile(figures.first_ms, 0.99),
      Quantile(figures.whole_ms, 0.5), Quantile(figures.whole_ms, 0.99),
      figures.flood_tokens_per_second, static_cast<long long>(figures.preempted));
}

bool Run(const Shape& shape) {
  const Figures alone = Simulation(shape, false, false).Run();
  const Figures beside = Simulation(shape, true, false).Run();
  Print(shape, "alone", alone);
  Print(shape, "beside", beside);
  const double chunk_ms = static_cast<double>(kStepNs + kStepTokens * kTokenNs) * 1e-6;
  const double limit_ms = 1.3 * Quantile(alone.first_ms, 0.99) + chunk_ms;
  const double ms = Quantile(beside.first_ms, 0.99);
  std::printf(
      "{\"benchmark\": \"fairness\", \"shape\": \"%s\", \"p99_ms\": %.1f, "
      "\"limit_ms\": %.1f, \"chunk_ms\": %.1f}\n",
      shape.name, ms, limit_ms, chunk_ms);
  return ms <= limit_ms;
}

}  // namespace
}  // namespace quire

int main() {
  bool good = true;
  for (const quire::Shape& shape : quire::kShapes) good &= quire::Run(shape);
  return good ? 0 : 1;
}
