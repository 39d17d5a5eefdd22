// Present from the start, so that the first structured output is an increase.
#include "server/metrics/guide_metrics.h"

#include <vector>

#include "server/metrics/metric_registry.h"

namespace quire {
namespace {

MetricRegistry::Buckets MaskBuckets() {
  MetricRegistry::Buckets edges;
  for (const int64_t ns : MaskStats::kEdges) edges.push_back(static_cast<double>(ns) * 1e-9);
  return edges;
}

}  // namespace

struct GuideMetrics::State {
  explicit State(MetricRegistry& r)
      : grammars(
            r.Counters("quire_grammars_total", "Structures of requests, by what became of them.")),
        cached(grammars.Add({{"result", "cached"}})),
        compiled(grammars.Add({{"result", "compiled"}})),
        refused(grammars.Add({{"result", "refused"}})),
        compile_seconds(r.OneHistogram("quire_grammar_compile_seconds",
                                       "Compiling a grammar, also one that was refused.",
                                       {.0001, .001, .005, .01, .05, .1, .5, 1, 5})),
        cache_bytes(r.OneGauge("quire_grammar_cache_bytes", "Memory of compiled grammars.")),
        mask_seconds(
            r.OneHistogram("quire_mask_seconds", "Making the mask of one token.", MaskBuckets())),
        late(r.OneCounter("quire_masks_late_total",
                          "Masks that were made too late for a step of their row.")) {}

  prometheus::Family<prometheus::Counter>& grammars;
  prometheus::Counter& cached;
  prometheus::Counter& compiled;
  prometheus::Counter& refused;
  prometheus::Histogram& compile_seconds;
  prometheus::Gauge& cache_bytes;
  prometheus::Histogram& mask_seconds;
  prometheus::Counter& late;
  MaskStats counted;  // those that mask_seconds has
};

GuideMetrics::GuideMetrics(MetricRegistry& registry) : state_(std::make_unique<State>(registry)) {}

GuideMetrics::~GuideMetrics() = default;

void GuideMetrics::Compiled(bool ok, double seconds) {
  (ok ? state_->compiled : state_->refused).Increment();
  state_->compile_seconds.Observe(seconds);
}

void GuideMetrics::Found() { state_->cached.Increment(); }

void GuideMetrics::CacheHolds(size_t bytes) { state_->cache_bytes.Set(static_cast<double>(bytes)); }

void GuideMetrics::Refresh(const MaskStats& stats) {
  std::vector<double> added(stats.masks.size());
  for (size_t i = 0; i < added.size(); ++i) {
    added[i] = static_cast<double>(stats.masks[i] - state_->counted.masks[i]);
  }
  const auto ns = static_cast<double>(stats.ns - state_->counted.ns);
  state_->mask_seconds.ObserveMultiple(added, ns * 1e-9);
  RaiseTo(state_->late, static_cast<double>(stats.late));
  state_->counted = stats;
}

}  // namespace quire
