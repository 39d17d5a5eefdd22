// TenantGate: the limits that refuse a tenant's request before anything is queued, the prediction
// of its first token, and each tenant's figures. Any thread; no call blocks. The scheduler thread
// publishes the requests that wait and run; those it has not taken yet are counted here. A request
// counts in both for a moment, never in neither.
//
// Refusals:
//   RESOURCE_EXHAUSTED: a limit of the tenant's own, with the payloads of TenantLimitReached. The
//   delay is true:
//     a bucket refills at a known rate; places in the queue become free at the measured one. It is
//     missing when no rate is known yet.
//   UNAVAILABLE: the server's queue is full, and this tenant has its part of it. A tenant below its
//     part is accepted beyond the bound, up to twice the bound.
//   DEADLINE_EXCEEDED: the predicted first token comes after the deadline, by kDeadlineMargin.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "engine/rate_meter.h"
#include "engine/schedule/pace/prompt_pace.h"
#include "engine/ttft_model.h"
#include "engine/values/cache_stats.h"
#include "engine/values/request.h"
#include "engine/values/scheduler_config.h"
#include "engine/values/tenant_limits.h"

namespace quire {

// A payload of DEADLINE_EXCEEDED: milliseconds, decimal.
inline constexpr char kPredictedTtftMs[] = "quire.limit/predicted_ttft_ms";

class TenantGate {
 public:
  // A request is refused for its deadline only if the prediction is this many times the time that
  // is left. The median of predictions is right, but a prompt whose KV is found begins earlier, and
  // a queue in which requests are cancelled drains faster; half the prediction is rarely beaten.
  static constexpr double kDeadlineMargin = 2;
  // Entries of tenants without a name, requests and pages of host memory are dropped beyond this
  // many.
  static constexpr size_t kMaxEntries = 4096;

  TenantGate(const SchedulerConfig& config, const EngineLimits& limits);

  void SetTable(const TenantTable& table);

  // Takes a place in the queue for a request with this many prompt tokens (of a turn: its new
  // ones), and the tokens from the tenant's bucket, or refuses. `predicted_ttft_ns`: 0 if nothing
  // is predicted. `answers`: requests with this prompt that enter together; each takes a place.
  absl::Status Enter(const Request& request, int64_t prompt_tokens, int64_t now_ns,
                     int64_t* predicted_ttft_ns, int32_t answers = 1);
  // The time to the first token of a request that came now; nullopt: not enough was measured.
  std::optional<double> PredictTtftSeconds(TenantId tenant, int64_t prompt_tokens, int64_t now_ns);
  // All tenants' figures, in the order of their ids.
  std::vector<TenantStats> Figures() const;
  uint64_t deadline_refusals() const;

  // --- The scheduler thread.
  // It has taken a request that entered.
  void Take(TenantId tenant, int64_t prompt_tokens) { taken_.push_back({tenant, prompt_tokens}); }
  // The scheduler refused the turn that was taken last: its tokens go back to the bucket.
  void Untake() { taken_.back().refused = true; }
  // Counts a refusal of a turn by a limit, and adds when to come back.
  void CompleteRefusal(TenantId tenant, int64_t prompt_tokens, int64_t now_ns,
                       absl::Status* status);
  // The state behind all requests that were taken; `changed`: the figures that changed.
  void Publish(const SchedulerLoad& load, std::span<const TenantStats> changed, int64_t now_ns);

 private:
  struct Entry {
    TenantLimits limits;
    bool named = false;
    int64_t inbox_requests = 0, inbox_tokens = 0;
    TenantStats figures;
    double bucket = 0;  // tokens, at `bucket_ns`
    int64_t bucket_ns = 0;
    RateMeter begun;         // requests
    RateMeter begun_tokens;  // their prompt tokens

    int64_t queued() const { return inbox_requests + figures.queued; }
    int64_t queued_tokens() const { return inbox_tokens + figures.queued_tokens; }
    int64_t tokens_ahead() const { return queued_tokens() + figures.prefill_tokens_left; }
  };
  struct Taken {
    TenantId tenant = 0;
    int64_t tokens = 0;
    bool refused = false;
  };

  Entry& Find(TenantId tenant);
  void DropIdle();
  static void Apply(Entry& entry, const TenantLimits& limits, bool named);
  static void Refill(Entry& entry, int64_t now_ns);
  // Changes an entry's counts, and the sums with them.
  template <typename Change>
  void Update(Entry& entry, Change change);
  absl::Status CheckLimits(Entry& entry, int32_t answers, int64_t prompt_tokens, int64_t now_ns);
  absl::Status CheckQueue(const Entry& entry, int32_t answers, int64_t prompt_tokens) const;
  void SetStepTimes(TtftSituation& situation) const;
  std::optional<double> Predict(Entry& entry, int64_t prompt_tokens, int64_t now_ns);

  const int32_t max_rows_;
  const int32_t max_step_tokens_;
  const PromptPace pace_;
  const int32_t block_size_;
  const int64_t max_queued_requests_, max_queued_tokens_;

  mutable std::mutex mutex_;
  // Under mutex_.
  TenantLimits defaults_;
  std::unordered_map<TenantId, Entry> entries_;
  size_t drop_at_ = kMaxEntries;
  SchedulerLoad load_;
  uint64_t deadline_refusals_ = 0;
  // Sums over all entries.
  int64_t queued_ = 0, queued_tokens_ = 0, tokens_ahead_ = 0;
  double waiting_weight_ = 0;  // of tenants with tokens ahead
  double active_weight_ = 0;   // of tenants that wait or run

  std::vector<Taken> taken_;  // the scheduler thread's
};

}  // namespace quire
