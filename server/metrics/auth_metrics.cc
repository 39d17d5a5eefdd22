// Series of reasons appear with the first refusal for them; the family keeps them.
#include "server/metrics/auth_metrics.h"

#include <atomic>

#include "server/metrics/metric_registry.h"

namespace quire {

struct AuthMetrics::State {
  explicit State(MetricRegistry& r)
      : failures(r.Counters("quire_auth_failures_total",
                            "Calls refused before their message was read, by reason.")),
        reloads(r.Counters("quire_key_file_reloads_total",
                           "Changes of the key file that were taken or refused.")),
        taken(reloads.Add({{"result", "taken"}})),
        refused_files(reloads.Add({{"result", "refused"}})),
        bad(r.OneGauge("quire_key_file_refused",
                       "1 while the key file is not the one in use, because it is bad.")),
        keys(r.OneGauge("quire_keys", "Keys in use; 0: the server asks for none.")) {}

  MetricRegistry::Family<prometheus::Counter>& failures;
  MetricRegistry::Family<prometheus::Counter>& reloads;
  prometheus::Counter& taken;
  prometheus::Counter& refused_files;
  prometheus::Gauge& bad;
  prometheus::Gauge& keys;
  std::atomic<int64_t> refused{0};
};

AuthMetrics::AuthMetrics(MetricRegistry& registry) : state_(std::make_unique<State>(registry)) {}

AuthMetrics::~AuthMetrics() = default;

void AuthMetrics::Refused(const char* reason) {
  state_->refused.fetch_add(1, std::memory_order_relaxed);
  state_->failures.Add({{"reason", reason}}).Increment();
}

int64_t AuthMetrics::refused() const { return state_->refused.load(std::memory_order_relaxed); }

void AuthMetrics::Reloaded(bool taken) {
  (taken ? state_->taken : state_->refused_files).Increment();
  state_->bad.Set(taken ? 0 : 1);
}

void AuthMetrics::Keys(int64_t keys) { state_->keys.Set(static_cast<double>(keys)); }

}  // namespace quire
