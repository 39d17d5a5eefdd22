// CPU time of the scheduler per step (timers, copies, Schedule, Retire, Load, delivery of the
// events) with every row running, a queue of a given length, idle sessions, two steps in flight,
// and arrivals, ends and cancels. Worker and copies take no time and are not measured. Prints one
// JSON object per line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sessions/session_store.h"
#include "engine/worker/fake/null_worker.h"
#include "kernels/check.h"
#include "tests/allocations.h"

namespace quire {
namespace {

constexpr int32_t kRows = 256;
constexpr int32_t kDepth = 2;
constexpr int32_t kVocab = 32000;
constexpr int kWarmUpSteps = 3000;
constexpr int kSteps = 30000;
constexpr double kP50Limit = 25.0;  // µs
constexpr double kP99Limit = 50.0;

double Quantile(std::vector<double>& values, double q) {
  const size_t i = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + i, values.end());
  return values[i];
}

class Load {
 public:
  Load(int32_t num_waiting, int32_t num_sessions)
      : num_waiting_(num_waiting),
        num_sessions_(num_sessions),
        scheduler_(Config(num_waiting, num_sessions)),
        worker_(kVocab) {
    events_.tokens.reserve(kRows);
    events_.finishes.reserve(kRows);
    free_plans_.resize(kDepth);
    result_.samples.reserve(kRows);
  }

  void Run() {
    while (next_session_ < num_sessions_ || scheduler_.HasWork()) {
      if (next_session_ < num_sessions_ && scheduler_.Load().waiting < kRows) AddTurn();
      Step();
    }
    CHECK_EQ(scheduler_.cache_stats().sessions, num_sessions_);
    idle_over_ = true;
    for (int step = 0; step < kWarmUpSteps; ++step) Step();
    step_us_.clear();
    step_us_.reserve(kSteps);
    add_us_.clear();
    num_tokens_ = num_finishes_ = 0;
    allocations_ = {};
    for (int step = 0; step < kSteps; ++step) Step();
    scheduler_.CheckInvariants();
    CHECK_GT(num_tokens_, int64_t{kSteps} * kRows * 8 / 10);
  }

  // True if the limits hold.
  bool Report() {
    const double p50 = Quantile(step_us_, 0.5);
    const double p99 = Quantile(step_us_, 0.99);
    const double per_step = static_cast<double>(allocations_.num) / kSteps;
    std::printf(
        "{\"benchmark\": \"scheduler\", \"running\": %d, \"waiting\": %d, \"idle_sessions\": %d, "
        "\"host_pages\": %d, \"steps\": %d, "
        "\"tokens_per_step\": %.1f, \"ends_per_step\": %.3f, "
        "\"p50_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f, \"p50_limit_us\": %.0f, "
        "\"p99_limit_us\": %.0f, \"allocations_per_step\": %.6f, \"add_p50_us\": %.2f}\n",
        kRows, num_waiting_, num_sessions_, scheduler_.cache_stats().host_pages_used, kSteps,
        static_cast<double>(num_tokens_) / kSteps, static_cast<double>(num_finishes_) / kSteps, p50,
        p99, Quantile(step_us_, 1.0), kP50Limit, kP99Limit, per_step, Quantile(add_us_, 0.5));
    return p50 <= kP50Limit && p99 <= kP99Limit && allocations_.num == 0;
  }

 private:
  static SchedulerConfig Config(int32_t num_waiting, int32_t num_sessions) {
    SchedulerConfig config;
    config.max_model_len = 4096;
    config.max_num_seqs = kRows;
    config.max_num_batched_tokens = 2048;
    config.max_num_queued_reqs = num_waiting + kRows;
    config.num_blocks = kRows * 40;
    config.num_pages = num_sessions * 4;
    config.sessions = {.max_sessions = num_sessions,
                       .max_sessions_per_tenant = num_sessions,
                       .max_session_tokens = int64_t{num_sessions} * 4096,
                       .max_model_len = config.max_model_len,
                       .default_ttl_seconds = 1e6,
                       .max_ttl_seconds = 1e6};
    return config;
  }

  // The only turn of a session, which is idle afterwards with its KV on the host.
  void AddTurn() {
    const SessionName name = std::to_string(next_session_++);
    CHECK(scheduler_.sessions().Create(0, name, {}, now_ns_).ok());
    auto request = std::make_unique<Request>();
    request->id = next_id_++;
    request->session_turn = TurnRequest{.session = name};
    for (int32_t i = 0; i < 50; ++i) request->prompt.push_back(Between(0, kVocab - 1));
    request->sampling.max_tokens = 2;
    request->arrival_ns = now_ns_;
    scheduler_.AddTurn(std::move(request), now_ns_, events_);
    CHECK(events_.starts.back().status.ok());
    events_.starts.clear();
  }

  void Copy() {
    CopyJob job;
    while (scheduler_.NextCopy(now_ns_, job)) {
      const auto num_good = static_cast<int32_t>(job.copies.size());
      scheduler_.OnCopy({.job = job.job, .num_good = num_good, .bytes = 1 << 20, .ns = 1 << 10},
                        now_ns_);
    }
  }

  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % (high - low + 1));
  }

  void Add() {
    auto request = std::make_unique<Request>();
    request->id = next_id_++;
    request->prompt.assign(Between(32, 400), 1);
    request->sampling.max_tokens = Between(64, 500);
    request->sampling.eos_token_ids = {kVocab};
    request->arrival_ns = now_ns_;
    if (Between(0, 1) == 0) request->deadline_ns = now_ns_ + Between(1'000'000, 2'000'000'000);
    add_us_.push_back(0.0);
    const auto begin = std::chrono::steady_clock::now();
    scheduler_.Add(std::move(request));
    const auto end = std::chrono::steady_clock::now();
    add_us_.back() = std::chrono::duration<double, std::micro>(end - begin).count();
  }

  void Step() {
    now_ns_ += 1000;
    const auto full = [this] {
      return scheduler_.Load().running + scheduler_.Load().waiting >= kRows + num_waiting_;
    };
    while (idle_over_ && !full()) Add();
    StepPlan plan = std::move(free_plans_.back());
    free_plans_.pop_back();
    bool any = false;
    double us = Measure([&] {
      scheduler_.OnTimer(now_ns_, events_);
      Copy();
      any = scheduler_.Schedule(now_ns_, plan, events_);
      if (Between(0, 99) == 0) {
        scheduler_.Cancel(next_id_ - 1, FinishReason::kCancelled, now_ns_, events_);
      }
    });
    (any ? in_flight_ : free_plans_).push_back(std::move(plan));
    if (static_cast<int32_t>(in_flight_.size()) == kDepth || !any) us += RetireOldest();
    step_us_.push_back(us);
  }

  double RetireOldest() {
    worker_.Run(in_flight_.front(), result_);
    const double us = Measure([&] {
      scheduler_.Retire(result_, now_ns_, events_);
      Deliver();
      CHECK_LE(scheduler_.Load().running, kRows);
    });
    free_plans_.push_back(std::move(in_flight_.front()));
    in_flight_.erase(in_flight_.begin());
    return us;
  }

  // Runs `call` on the clock and with its allocations counted; returns microseconds.
  template <typename Call>
  double Measure(Call call) {
    std::chrono::steady_clock::duration time{};
    allocations_ += AllocationsOf([&] {
      const auto begin = std::chrono::steady_clock::now();
      call();
      time = std::chrono::steady_clock::now() - begin;
    });
    return std::chrono::duration<double, std::micro>(time).count();
  }

  void Deliver() {
    num_tokens_ += static_cast<int64_t>(events_.tokens.size());
    num_finishes_ += static_cast<int64_t>(events_.finishes.size());
    events_.tokens.clear();
    events_.finishes.clear();
    events_.preempted = events_.admitted = 0;
  }

  const int32_t num_waiting_;
  const int32_t num_sessions_;
  int32_t next_session_ = 0;
  bool idle_over_ = false;  // the sessions have had their turns
  Scheduler scheduler_;
  NullWorker worker_;
  SchedulerEvents events_;
  std::vector<StepPlan> free_plans_;
  std::vector<StepPlan> in_flight_;
  StepResult result_;
  std::mt19937 random_{1};
  RequestId next_id_ = 1;
  int64_t now_ns_ = 1;
  std::vector<double> step_us_;
  std::vector<double> add_us_;
  int64_t num_tokens_ = 0;
  int64_t num_finishes_ = 0;
  Allocations allocations_;
};

}  // namespace
}  // namespace quire

int main() {
  bool within_limits = true;
  using Case = std::pair<int32_t, int32_t>;
  for (const auto& [waiting, sessions] :
       {Case{0, 0}, Case{1000, 0}, Case{10000, 0}, Case{10000, 100}, Case{10000, 10000}}) {
    quire::Load load(waiting, sessions);
    load.Run();
    within_limits &= load.Report();
  }
  return within_limits ? 0 : 1;
}
