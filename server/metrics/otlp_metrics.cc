// One series for each outcome, all there from the start.
#include "server/metrics/otlp_metrics.h"

#include "server/metrics/metric_registry.h"

namespace quire {

struct OtlpMetrics::State {
  explicit State(MetricRegistry& r)
      : spans(r.Counters("quire_otlp_spans_total", "Spans by the outcome of their export.")),
        sent(spans.Add({{"outcome", "sent"}})),
        dropped(spans.Add({{"outcome", "dropped"}})),
        failed(spans.Add({{"outcome", "failed"}})),
        invalid(r.OneCounter("quire_traceparent_invalid_total",
                             "Calls whose traceparent was invalid and ignored.")) {}

  prometheus::Counter& Of(Outcome outcome) {
    return outcome == Outcome::kSent ? sent : outcome == Outcome::kDropped ? dropped : failed;
  }

  prometheus::Family<prometheus::Counter>& spans;
  prometheus::Counter& sent;
  prometheus::Counter& dropped;
  prometheus::Counter& failed;
  prometheus::Counter& invalid;
};

OtlpMetrics::OtlpMetrics(MetricRegistry& registry) : state_(std::make_unique<State>(registry)) {}

OtlpMetrics::~OtlpMetrics() = default;

void OtlpMetrics::Count(Outcome outcome, int64_t spans) {
  state_->Of(outcome).Increment(static_cast<double>(spans));
}

int64_t OtlpMetrics::Total(Outcome outcome) const {
  return static_cast<int64_t>(state_->Of(outcome).Value());
}

void OtlpMetrics::InvalidTraceparent() { state_->invalid.Increment(); }

}  // namespace quire
