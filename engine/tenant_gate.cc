// Limits, buckets and predictions of tenants.
#include "engine/tenant_gate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/cord.h"
#include "engine/base/status_macros.h"
#include "engine/values/admission.h"

namespace quire {
namespace {

constexpr double kBucketSeconds = 60;
constexpr double kMaxRetrySeconds = 60;
constexpr double kMinRetrySeconds = 0.001;

// When `count` of what leaves at this rate have left; -1: not known.
double SecondsUntilLeft(double count, double per_second) {
  if (per_second <= 0) return -1;
  return std::clamp(count / per_second, kMinRetrySeconds, kMaxRetrySeconds);
}

}  // namespace

TenantGate::TenantGate(const SchedulerConfig& config, const EngineLimits& limits)
    : max_rows_(config.max_num_seqs),
      max_step_tokens_(config.max_num_batched_tokens),
      pace_{config.mixed_step_tokens, config.pace_prompts},
      block_size_(config.block_size),
      max_queued_requests_(limits.max_num_queued_reqs),
      max_queued_tokens_(limits.max_num_queued_tokens) {}

void TenantGate::SetTable(const TenantTable& table) {
  std::lock_guard lock(mutex_);
  defaults_ = table.defaults;
  for (const auto& [tenant, limits] : table.tenants) Find(tenant);
  const std::unordered_map<TenantId, TenantLimits> named(table.tenants.begin(),
                                                         table.tenants.end());
  for (auto& [tenant, entry] : entries_) {
    const auto found = named.find(tenant);
    const bool is_named = found != named.end();
    const TenantLimits& limits = is_named ? found->second : table.defaults;
    Update(entry, [&](Entry& e) { Apply(e, limits, is_named); });
  }
}

TenantGate::Entry& TenantGate::Find(TenantId tenant) {
  const auto found = entries_.find(tenant);
  if (found != entries_.end()) return found->second;
  if (entries_.size() >= drop_at_) DropIdle();
  Entry& entry = entries_[tenant];
  entry.figures.tenant = tenant;
  Apply(entry, defaults_, false);
  return entry;
}

void TenantGate::DropIdle() {
  std::erase_if(entries_, [](const auto& item) {
    const Entry& entry = item.second;
    return !entry.named && entry.queued() == 0 && entry.figures.running == 0 &&
           entry.figures.host_pages == 0;
  });
  drop_at_ = std::max(kMaxEntries, 2 * entries_.size());
}

void TenantGate::Apply(Entry& entry, const TenantLimits& limits, bool named) {
  const auto most = static_cast<double>(limits.tokens_per_minute);
  // A new limit begins with a full bucket; another limit keeps what was used of the old one.
  const auto before = static_cast<double>(entry.limits.tokens_per_minute);
  entry.bucket = before == 0 ? most : std::min(most, most - (before - entry.bucket));
  entry.limits = limits;
  entry.named = named;
  entry.figures.named = named;
}

void TenantGate::Refill(Entry& entry, int64_t now_ns) {
  const auto most = static_cast<double>(entry.limits.tokens_per_minute);
  const double seconds = static_cast<double>(now_ns - entry.bucket_ns) * 1e-9;
  if (seconds <= 0) return;
  if (entry.bucket_ns != 0) {
    entry.bucket = std::min(most, entry.bucket + seconds * most / kBucketSeconds);
  }
  entry.bucket_ns = now_ns;
}

template <typename Change>
void TenantGate::Update(Entry& entry, Change change) {
  const auto add = [&](int sign) {
    const double weight = sign * entry.limits.weight;
    queued_ += sign * entry.queued();
    queued_tokens_ += sign * entry.queued_tokens();
    tokens_ahead_ += sign * entry.tokens_ahead();
    if (entry.tokens_ahead() > 0) waiting_weight_ += weight;
    if (entry.queued() + entry.figures.running > 0) active_weight_ += weight;
  };
  add(-1);
  change(entry);
  add(1);
}

absl::Status TenantGate::CheckLimits(Entry& entry, int32_t answers, int64_t prompt_tokens,
                                     int64_t now_ns) {
  const TenantLimits& limits = entry.limits;
  const int64_t requests = entry.queued() + answers;
  // Answers that are more than the limit wait alone.
  if (limits.max_queued_requests > 0 && requests > limits.max_queued_requests &&
      entry.queued() > 0) {
    const double rate = entry.begun.PerSecond(now_ns);
    return TenantLimitReached(
        TenantLimit::kQueuedRequests, limits.max_queued_requests,
        SecondsUntilLeft(
            static_cast<double>(std::min(entry.queued(), requests - limits.max_queued_requests)),
            rate),
        std::to_string(entry.queued()) + " requests wait");
  }
  const int64_t tokens = entry.queued_tokens() + prompt_tokens;
  // A prompt that is longer than the limit waits alone.
  if (limits.max_queued_tokens > 0 && tokens > limits.max_queued_tokens &&
      entry.queued_tokens() > 0) {
    const int64_t excess = std::min(entry.queued_tokens(), tokens - limits.max_queued_tokens);
    return TenantLimitReached(
        TenantLimit::kQueuedTokens, limits.max_queued_tokens,
        SecondsUntilLeft(static_cast<double>(excess), entry.begun_tokens.PerSecond(now_ns)),
        std::to_string(entry.queued_tokens()) + " prompt tokens wait");
  }
  if (limits.tokens_per_minute == 0) return absl::OkStatus();
  Refill(entry, now_ns);
  const auto most = static_cast<double>(limits.tokens_per_minute);
  const double needed = std::min(static_cast<double>(prompt_tokens), most);
  if (entry.bucket >= needed && entry.bucket > 0) return absl::OkStatus();
  // Rounded up: a client that waits this long finds the tokens there.
  const double seconds = (std::max(needed, 1.0) - entry.bucket) * kBucketSeconds / most;
  return TenantLimitReached(
      TenantLimit::kTokensPerMinute, limits.tokens_per_minute, seconds + 0.001,
      "the bucket holds " + std::to_string(static_cast<int64_t>(std::floor(entry.bucket))) +
          " tokens, and the prompt has " + std::to_string(prompt_tokens));
}

absl::Status TenantGate::CheckQueue(const Entry& entry, int32_t answers,
                                    int64_t prompt_tokens) const {
  const bool fits = queued_ + answers <= max_queued_requests_ &&
                    queued_tokens_ + prompt_tokens <= max_queued_tokens_;
  if (fits) return absl::OkStatus();
  const bool counted = entry.queued() + entry.figures.running > 0;
  const double weights = active_weight_ + (counted ? 0 : entry.limits.weight);
  const double part = entry.limits.weight / weights;
  const auto of = [part](int64_t bound) { return part * static_cast<double>(bound); };
  const bool within_part =
      static_cast<double>(entry.queued() + answers) <= of(max_queued_requests_) &&
      static_cast<double>(entry.queued_tokens() + prompt_tokens) <= of(max_queued_tokens_);
  // Written as differences: a bound of tokens may be the largest number.
  const bool within_twice =
      queued_ + answers - max_queued_requests_ <= max_queued_requests_ &&
      queued_tokens_ + prompt_tokens - max_queued_tokens_ <= max_queued_tokens_;
  if (part < 1 && within_part && within_twice) return absl::OkStatus();
  return QueueFull(queued_, queued_tokens_);
}

absl::Status TenantGate::Enter(const Request& request, int64_t prompt_tokens, int64_t now_ns,
                               int64_t* predicted_ttft_ns, int32_t answers) {
  std::lock_guard lock(mutex_);
  Entry& entry = Find(request.tenant);
  const absl::Status status = CheckLimits(entry, answers, prompt_tokens, now_ns);
  if (const auto name = status.GetPayload(kLimitName)) {
    for (size_t i = 0; i < kNumTenantLimits; ++i) {
      entry.figures.refused[i] += *name == Name(static_cast<TenantLimit>(i));
    }
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckQueue(entry, answers, prompt_tokens));
  const std::optional<double> predicted = Predict(entry, prompt_tokens, now_ns);
  *predicted_ttft_ns = static_cast<int64_t>(predicted.value_or(0) * 1e9);
  if (predicted.has_value() && request.deadline_ns != kNoDeadline) {
    const double left = static_cast<double>(request.deadline_ns - now_ns) * 1e-9;
    // One that has passed already ends the request with its own reason.
    if (left > 0 && *predicted > left * kDeadlineMargin) {
      ++deadline_refusals_;
      const std::string ms = std::to_string(static_cast<int64_t>(*predicted * 1e3));
      absl::Status late = absl::DeadlineExceededError(
          "the first token is predicted in " + ms + " ms; the deadline is in " +
          std::to_string(static_cast<int64_t>(left * 1e3)) + " ms");
      late.SetPayload(kPredictedTtftMs, absl::Cord(ms));
      return late;
    }
  }
  Update(entry, [&](Entry& e) {
    e.inbox_requests += answers;
    e.inbox_tokens += prompt_tokens;
  });
  if (entry.limits.tokens_per_minute > 0) entry.bucket -= static_cast<double>(prompt_tokens);
  return absl::OkStatus();
}

void TenantGate::CompleteRefusal(TenantId tenant, int64_t prompt_tokens, int64_t now_ns,
                                 absl::Status* status) {
  const auto name = status->GetPayload(kLimitName);
  if (!name.has_value()) return;
  std::lock_guard lock(mutex_);
  Entry& entry = Find(tenant);
  for (size_t i = 0; i < kNumTenantLimits; ++i) {
    entry.figures.refused[i] += *name == Name(static_cast<TenantLimit>(i));
  }
  const double seconds =
      SecondsUntilLeft(static_cast<double>(prompt_tokens), entry.begun_tokens.PerSecond(now_ns));
  if (seconds >= 0) status->SetPayload(kLimitRetrySeconds, absl::Cord(std::to_string(seconds)));
}

// The time of steps with what runs now, and the tokens that these give to prompts.
void TenantGate::SetStepTimes(TtftSituation& situation) const {
  const StepCost& cost = load_.step_cost;
  if (!cost.known) return;
  situation.step_seconds = cost.Seconds({.rows = static_cast<double>(load_.running),
                                         .contexts = static_cast<double>(load_.tokens_in_flight)});
  situation.token_seconds =
      cost.prompt_token + cost.prompt_read * static_cast<double>(situation.prompt_tokens) / 2;
  situation.step_tokens = std::max(1, max_step_tokens_ - load_.running);
  const PromptDemand demand = {
      .rows = load_.running,
      .contexts = load_.tokens_in_flight,
      .prompts = std::min(max_rows_, load_.waiting + 1),
      .tokens = situation.prompt_tokens + situation.own_tokens + situation.other_tokens};
  situation.step_tokens = pace_.Tokens(cost, demand, situation.step_tokens);
}

std::optional<double> TenantGate::Predict(Entry& entry, int64_t prompt_tokens, int64_t now_ns) {
  TtftSituation situation;
  situation.prompt_tokens = prompt_tokens;
  situation.own_tokens = entry.tokens_ahead();
  situation.own_waiting = entry.queued();
  situation.own_begun_per_second = entry.begun.FreshPerSecond(now_ns);
  situation.other_tokens = tokens_ahead_ - entry.tokens_ahead();
  const double weight = entry.limits.weight;
  const double waiting = waiting_weight_ + (entry.tokens_ahead() > 0 ? 0 : weight);
  situation.share = std::clamp(weight / waiting, 1e-6, 1.0);
  SetStepTimes(situation);
  const int32_t running = entry.figures.running;
  const int32_t most = entry.limits.max_running_requests;
  const bool capped = most > 0 && running >= most;
  situation.free_rows = capped ? 0 : std::max(0, max_rows_ - load_.running - load_.restoring);
  const bool no_blocks =
      int64_t{load_.free_blocks} * block_size_ < situation.prompt_tokens + situation.own_tokens;
  const bool counted = entry.queued() + running > 0;
  const double part = max_rows_ * weight / (active_weight_ + (counted ? 0 : weight));
  const bool below_part = part < max_rows_ && running + 1 <= part && entry.queued() == 0;
  const bool short_of_room = situation.free_rows <= entry.queued() || no_blocks;
  situation.waits_for_row = capped || (short_of_room && !below_part);
  return PredictTtft(situation);
}

std::optional<double> TenantGate::PredictTtftSeconds(TenantId tenant, int64_t prompt_tokens,
                                                     int64_t now_ns) {
  std::lock_guard lock(mutex_);
  return Predict(Find(tenant), prompt_tokens, now_ns);
}

std::vector<TenantStats> TenantGate::Figures() const {
  std::vector<TenantStats> figures;
  {
    std::lock_guard lock(mutex_);
    figures.reserve(entries_.size());
    for (const auto& [tenant, entry] : entries_) {
      figures.push_back(entry.figures);
      figures.back().queued += static_cast<int32_t>(entry.inbox_requests);
      figures.back().queued_tokens += entry.inbox_tokens;
    }
  }
  std::ranges::sort(figures, {}, &TenantStats::tenant);
  return figures;
}

uint64_t TenantGate::deadline_refusals() const {
  std::lock_guard lock(mutex_);
  return deadline_refusals_;
}

void TenantGate::Publish(const SchedulerLoad& load, std::span<const TenantStats> changed,
                         int64_t now_ns) {
  std::lock_guard lock(mutex_);
  load_ = load;
  for (const TenantStats& stats : changed) {
    Entry& entry = Find(stats.tenant);
    TenantStats& old = entry.figures;
    // Another tenant had the scheduler's account meanwhile: its counts begin anew.
    const bool anew = stats.generated_tokens < old.generated_tokens || stats.begun < old.begun;
    const TenantStats base = anew ? TenantStats() : old;
    if (entry.limits.tokens_per_minute > 0) {
      Refill(entry, now_ns);
      entry.bucket -= static_cast<double>(stats.generated_tokens - base.generated_tokens);
    }
    if (stats.begun > base.begun) {
      entry.begun.Add(static_cast<double>(stats.begun - base.begun), now_ns);
      entry.begun_tokens.Add(static_cast<double>(stats.begun_tokens - base.begun_tokens), now_ns);
    }
    Update(entry, [&](Entry& e) {
      const auto refused = e.figures.refused;
      e.figures = stats;
      e.figures.named = e.named;
      e.figures.refused = refused;
    });
  }
  for (const Taken& taken : taken_) {
    Update(Find(taken.tenant), [&](Entry& e) {
      --e.inbox_requests;
      e.inbox_tokens -= taken.tokens;
      const bool limited = e.limits.tokens_per_minute > 0;
      if (limited && taken.refused) e.bucket += static_cast<double>(taken.tokens);
    });
  }
  taken_.clear();
}

}  // namespace quire
