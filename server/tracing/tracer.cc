// The decision to sample, by parent or by ratio, and the queue behind it.
#include "server/tracing/tracer.h"

#include <optional>
#include <utility>

#include "server/metrics/otlp_metrics.h"
#include "server/tracing/otlp_exporter.h"
#include "server/tracing/record_queue.h"
#include "server/tracing/request_trace.h"

namespace quire {
namespace {

// Some 6,000 requests, which at a thousand a second is the time that a collector takes to restart.
// The bytes bound the server's memory: a request without long ids and states has half a kilobyte.
constexpr RecordQueue::Bounds kBounds = {.max_spans = 32 << 10, .max_bytes = 16 << 20};

}  // namespace

struct Tracer::State {
  State(const TracerOptions& options, OtlpMetrics* m)
      : sample_ratio(options.sample_ratio), metrics(*m), exporter(options, &queue, m) {}

  const double sample_ratio;
  OtlpMetrics& metrics;
  RecordQueue queue{kBounds};
  OtlpExporter exporter;  // last: its thread uses the queue
};

Tracer::Tracer(const TracerOptions& options, OtlpMetrics* metrics)
    : state_(std::make_unique<State>(options, metrics)) {}

Tracer::~Tracer() = default;

std::unique_ptr<RequestTrace> Tracer::Begin(const char* method, const TraceHeaders& headers) {
  RequestRecord record{.method = method};
  std::optional<TraceContext> parent;
  if (headers.count == 1) parent = ParseTraceparent(headers.traceparent);
  if (headers.count > 0 && !parent.has_value()) state_->metrics.InvalidTraceparent();
  if (parent.has_value()) {
    record.context = *parent;
    record.parent_id = parent->span_id;
    record.trace_state = BoundTracestate(headers.tracestate);
  } else {
    record.context.trace_id = NewTraceId();
    record.context.sampled = WithinRatio(record.context.trace_id, state_->sample_ratio);
  }
  record.context.span_id = NewSpanId();
  return std::make_unique<RequestTrace>(this, std::move(record));
}

void Tracer::Send(RequestRecord record) {
  const int64_t spans = NumSpans(record);
  if (!state_->queue.Push(std::move(record))) {
    state_->metrics.Count(OtlpMetrics::Outcome::kDropped, spans);
  }
}

}  // namespace quire
