// Present from the start, so that the first lost connection is an increase.
#include "server/detach/detach_metrics.h"

#include <array>

#include "server/metrics/metric_registry.h"

namespace quire {

struct DetachMetrics::State {
  explicit State(MetricRegistry& r)
      : detached(r.OneGauge("quire_detached_streams",
                            "Requests that run or are kept without a reader.")),
        bytes(r.OneGauge("quire_detached_bytes", "Memory of answers that are kept for Attach.")),
        expired(r.OneCounter("quire_detached_expired_total",
                             "Requests and answers that no reader came back for in time.")),
        refused(r.OneCounter("quire_detached_refused_total",
                             "Requests refused because the server keeps too many answers.")),
        attaches(r.Counters("quire_attach_total", "Attach calls, by result.")) {
    const char* const names[] = {"resumed", "took_over", "not_found", "not_detachable",
                                 "out_of_range"};
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = &attaches.Add({{"result", names[i]}});
    }
  }

  prometheus::Gauge& detached;
  prometheus::Gauge& bytes;
  prometheus::Counter& expired;
  prometheus::Counter& refused;
  prometheus::Family<prometheus::Counter>& attaches;
  std::array<prometheus::Counter*, 5> results = {};
};

DetachMetrics::DetachMetrics(MetricRegistry& registry)
    : state_(std::make_unique<State>(registry)) {}

DetachMetrics::~DetachMetrics() = default;

void DetachMetrics::Detached() { state_->detached.Increment(); }

void DetachMetrics::Returned() { state_->detached.Decrement(); }

int DetachMetrics::detached() const { return static_cast<int>(state_->detached.Value()); }

void DetachMetrics::Expired() { state_->expired.Increment(); }

void DetachMetrics::Keeps(int64_t bytes) { state_->bytes.Set(static_cast<double>(bytes)); }

void DetachMetrics::Attached(Attach result) {
  state_->results[static_cast<size_t>(result)]->Increment();
}

void DetachMetrics::Refused() { state_->refused.Increment(); }

}  // namespace quire
