// Tracer: begins the trace of each generating call and sends finished ones to an OpenTelemetry
// collector. It exists only when an endpoint is set; without one a call costs nothing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/tracing/otlp_endpoint.h"
#include "server/tracing/request_record.h"

namespace quire {

class OtlpMetrics;
class RequestTrace;

// The two headers of a call, as the client sent them.
struct TraceHeaders {
  size_t count = 0;         // of `traceparent`: more than one is invalid
  std::string traceparent;  // the first
  std::string tracestate;   // all of them, joined by commas
};

struct TracerOptions {
  OtlpEndpoint endpoint;
  double sample_ratio = 1;  // of traces that begin here
  std::string service_name;
  std::string service_version;
  std::string model;
};

class Tracer {
 public:
  // Starts the exporter's thread. `metrics` outlive the tracer.
  Tracer(const TracerOptions& options, OtlpMetrics* metrics);
  // Every trace has ended. Sends the queued spans, for a second at most.
  ~Tracer();

  // Any thread. `method` is a constant. A valid parent decides whether the trace is sampled; an
  // invalid one is counted and ignored.
  std::unique_ptr<RequestTrace> Begin(const char* method, const TraceHeaders& headers);
  // Queues the record, or counts its spans as dropped. Any thread; never waits.
  void Send(RequestRecord record);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
