// Two tables list the metrics of the prefix cache, the tiers and the sessions, as the engine counts
// them.
#include "server/metrics/cache_metrics.h"

#include <array>
#include <cstddef>
#include <vector>

#include "server/metrics/metric_registry.h"

namespace quire {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Stats = const EngineStats&;

// One metric, or one labelled series of it.
struct Fact {
  const char* name;
  const char* help;
  int64_t (*value)(Stats);
  const char* label = nullptr;
  const char* label_value = nullptr;
};

constexpr char kHits[] = "quire_prefix_cache_hit_tokens_total";
constexpr char kHitsHelp[] = "Prompt tokens whose KV was found, by tier.";
constexpr char kSource[] = "vllm:prompt_tokens_by_source_total";
constexpr char kSourceHelp[] = "Prompt tokens of admitted requests, by source of their KV.";
constexpr char kWaiting[] = "vllm:num_requests_waiting_by_reason";
constexpr char kWaitingHelp[] = "Waiting requests, by reason.";
constexpr char kSpeed[] = "quire_kv_copy_bytes_per_second";
constexpr char kSpeedHelp[] = "Measured speed of copies, by direction; 0 before the first.";

constexpr Fact kCounters[] = {
    {"quire_prefix_cache_queried_tokens_total", "Prompt tokens looked up in the prefix cache.",
     [](Stats s) { return s.cache.queried_tokens; }},
    {kHits, kHitsHelp, [](Stats s) { return s.cache.device_tokens; }, "tier", "device"},
    {kHits, kHitsHelp, [](Stats s) { return s.cache.host_tokens; }, "tier", "host"},
    // vLLM has a metric for each tier instead of a label.
    {"vllm:prefix_cache_hits_total", "Prompt tokens whose KV was found on the device.",
     [](Stats s) { return s.cache.device_tokens; }},
    {"vllm:external_prefix_cache_queries_total",
     "Prompt tokens not found on the device and looked up on the host.",
     [](Stats s) { return s.cache.queried_tokens - s.cache.device_tokens; }},
    {"vllm:external_prefix_cache_hits_total", "Prompt tokens whose KV was loaded from the host.",
     [](Stats s) { return s.cache.host_tokens; }},
    {"vllm:prompt_tokens_cached_total", "Prompt tokens whose KV was found on either tier.",
     [](Stats s) { return s.cache.device_tokens + s.cache.host_tokens; }},
    // Not the tokens that steps compute: vLLM counts a prompt whole, and once.
    {"vllm:prompt_tokens_total", "Prompt tokens of admitted requests, cached ones included.",
     [](Stats s) { return s.cache.queried_tokens; }},
    {kSource, kSourceHelp, [](Stats s) { return s.cache.computed_tokens; }, "source",
     "local_compute"},
    {kSource, kSourceHelp, [](Stats s) { return s.cache.device_tokens; }, "source",
     "local_cache_hit"},
    {kSource, kSourceHelp, [](Stats s) { return s.cache.host_tokens; }, "source",
     "external_kv_transfer"},
    {"quire_kv_evicted_blocks_total", "Cached blocks evicted from the device.",
     [](Stats s) { return s.cache.evicted_blocks; }},
    {"quire_session_kv_lost_blocks_total",
     "Evicted blocks of idle sessions without a host copy: the next turn recomputes them.",
     [](Stats s) { return s.cache.kept_lost; }},
    {"quire_kv_stored_bytes_total", "Bytes copied from the device to the host.",
     [](Stats s) { return s.tiering.stored_bytes; }},
    {"quire_kv_stored_blocks_total", "Blocks copied from the device to the host.",
     [](Stats s) { return s.tiering.stored_blocks; }},
    {"quire_kv_loaded_bytes_total", "Bytes copied from the host to the device.",
     [](Stats s) { return s.tiering.loaded_bytes; }},
    {"quire_kv_loaded_blocks_total", "Blocks copied from the host to the device.",
     [](Stats s) { return s.tiering.loaded_blocks; }},
    {"quire_kv_copies_failed_total", "Copy jobs that failed.",
     [](Stats s) { return s.tiering.failed_jobs; }},
    {"quire_kv_copies_late_total", "Copy jobs that exceeded their time limit.",
     [](Stats s) { return s.tiering.late_jobs; }},
    {"quire_kv_corrupt_pages_total", "Host pages dropped because of a wrong checksum.",
     [](Stats s) { return s.tiering.corrupt_pages; }},
    {"quire_kv_dropped_pages_total", "Host pages evicted because host memory was full.",
     [](Stats s) { return s.tiering.pages_dropped; }},
    {"quire_kv_restores_declined_total",
     "Restores skipped because computing was expected to be faster.",
     [](Stats s) { return s.tiering.restores_declined; }},
    {"quire_kv_restores_late_total",
     "Restores given up because they took longer than computing would have.",
     [](Stats s) { return s.tiering.restores_late; }},
    {"quire_kv_stores_given_up_total", "Stores given up because their blocks were needed.",
     [](Stats s) { return s.tiering.stores_given_up; }},
};

constexpr Fact kGauges[] = {
    {"quire_kv_blocks_cached", "Free blocks that hold reusable KV.",
     [](Stats s) -> int64_t { return s.cache.cached_blocks; }},
    {"quire_host_pages", "Pages of host memory, one block each.",
     [](Stats s) -> int64_t { return s.cache.host_pages; }},
    {"quire_host_pages_ready", "Pages of host memory that are allocated and pinned, hence usable.",
     [](Stats s) -> int64_t { return s.cache.host_pages_ready; }},
    {"quire_host_pages_used", "Pages of host memory that hold KV.",
     [](Stats s) -> int64_t { return s.cache.host_pages_used; }},
    {"quire_session_tokens", "Tokens of all sessions.",
     [](Stats s) { return s.cache.session_tokens; }},
    {"quire_requests_restoring", "Requests that wait for KV from the host.",
     [](Stats s) -> int64_t { return s.load.restoring; }},
    {kWaiting, kWaitingHelp, [](Stats s) -> int64_t { return s.load.waiting; }, "reason",
     "capacity"},
    {kWaiting, kWaitingHelp, [](Stats s) -> int64_t { return s.load.restoring; }, "reason",
     "deferred"},
    {"quire_kv_copies_in_flight", "Copy jobs in flight.",
     [](Stats s) -> int64_t { return s.tiering.jobs_in_flight; }},
    {kSpeed, kSpeedHelp,
     [](Stats s) { return static_cast<int64_t>(s.tiering.store_bytes_per_second); }, "direction",
     "store"},
    {kSpeed, kSpeedHelp,
     [](Stats s) { return static_cast<int64_t>(s.tiering.load_bytes_per_second); }, "direction",
     "load"},
};

constexpr std::array kOutcomes = {
    Residency::Outcome::kNone,    Residency::Outcome::kDevice,     Residency::Outcome::kRestored,
    Residency::Outcome::kPartial, Residency::Outcome::kRecomputed,
};
// The states of an existing session: all but kClosed.
constexpr std::array kStates = {
    SessionState::kActive, SessionState::kResidentIdle, SessionState::kOffloading,
    SessionState::kHost,   SessionState::kRestoring,    SessionState::kDropped,
};

// From one block of a small model to a long context over a slow link.
Histogram::BucketBoundaries RestoreBuckets() {
  return {.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .02,
          .03,    .05,   .1,     .25,   .5,   1,     2.5,  5,   10};
}

prometheus::Labels LabelsOf(const Fact& fact) {
  if (fact.label == nullptr) return {};
  return {{fact.label, fact.label_value}};
}

}  // namespace

struct CacheMetrics::State {
  std::vector<Counter*> counters;  // one for each of kCounters
  std::vector<Gauge*> gauges;      // one for each of kGauges
  std::array<Counter*, kOutcomes.size()> outcomes{};
  std::array<Histogram*, kOutcomes.size()> first_token{};
  std::array<Gauge*, kStates.size()> sessions{};
  Counter* recomputed = nullptr;
  Histogram* restore_time = nullptr;
};

CacheMetrics::CacheMetrics(MetricRegistry& registry) : state_(std::make_unique<State>()) {
  State& state = *state_;
  for (const Fact& fact : kCounters) {
    state.counters.push_back(&registry.Counters(fact.name, fact.help).Add(LabelsOf(fact)));
  }
  for (const Fact& fact : kGauges) {
    state.gauges.push_back(&registry.Gauges(fact.name, fact.help).Add(LabelsOf(fact)));
  }
  auto& outcomes = registry.Counters("quire_request_residency_total",
                                     "Ended requests, by where their KV was found.");
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    state.outcomes[i] = &outcomes.Add({{"outcome", Name(kOutcomes[i])}});
  }
  auto& first_token =
      registry.Histograms("quire_residency_time_to_first_token_seconds",
                          "Time from arrival to first token, by where the KV was found.");
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    state.first_token[i] = &first_token.Add({{"outcome", Name(kOutcomes[i])}}, FirstTokenBuckets());
  }
  auto& sessions = registry.Gauges("quire_sessions", "Sessions, by state.");
  for (size_t i = 0; i < kStates.size(); ++i) {
    state.sessions[i] = &sessions.Add({{"state", Name(kStates[i])}});
  }
  state.recomputed = &registry.OneCounter("quire_session_recomputed_tokens_total",
                                          "Session tokens that turns recomputed.");
  state.restore_time = &registry.OneHistogram(
      "quire_kv_restore_seconds", "Time from the first to the last copy of a request's KV.",
      RestoreBuckets());
}

CacheMetrics::~CacheMetrics() = default;

void CacheMetrics::Found(const Residency& residency, double first_token_seconds) {
  for (size_t i = 0; i < kOutcomes.size(); ++i) {
    if (residency.outcome != kOutcomes[i]) continue;
    state_->outcomes[i]->Increment();
    if (first_token_seconds > 0) state_->first_token[i]->Observe(first_token_seconds);
  }
  state_->recomputed->Increment(residency.recomputed_tokens);
  if (residency.restore_ns == 0) return;
  state_->restore_time->Observe(static_cast<double>(residency.restore_ns) * 1e-9);
}

void CacheMetrics::Refresh(const EngineStats& stats) {
  for (size_t i = 0; i < std::size(kCounters); ++i) {
    RaiseTo(*state_->counters[i], static_cast<double>(kCounters[i].value(stats)));
  }
  for (size_t i = 0; i < std::size(kGauges); ++i) {
    state_->gauges[i]->Set(static_cast<double>(kGauges[i].value(stats)));
  }
  for (size_t i = 0; i < kStates.size(); ++i) {
    const auto state = static_cast<size_t>(kStates[i]);
    state_->sessions[i]->Set(static_cast<double>(stats.cache.sessions_by_state[state]));
  }
}

}  // namespace quire
