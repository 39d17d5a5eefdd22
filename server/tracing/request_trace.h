// RequestTrace: the trace of one generating call, which its stream owns. It collects the facts that
// become spans, and hands them to the exporter's queue when it is destroyed: then the call and the
// engine have both let go of the stream, in either order.
#pragma once

#include <cstdint>
#include <string>

#include "engine/values/output_sink.h"
#include "engine/values/request.h"
#include "server/tracing/request_record.h"

namespace quire {

class Tracer;

class RequestTrace {
 public:
  // `record` has context, parent and method. `tracer` outlives this.
  RequestTrace(Tracer* tracer, RequestRecord record);
  ~RequestTrace();
  RequestTrace(const RequestTrace&) = delete;
  RequestTrace& operator=(const RequestTrace&) = delete;

  // For the log, and for the client. Any thread.
  std::string trace_id() const { return HexOf(record_.context.trace_id); }
  std::string traceparent() const { return FormatTraceparent(record_.context); }

  // Each at most once. They write different members, so the threads of a call need no lock; the
  // stream's reference count orders all of them before the destructor.
  void Arrived(int64_t now_ns) { record_.arrived_ns = now_ns; }
  // "chat" or "text_completion".
  void Decoded(const char* operation) { record_.operation = operation; }
  void Submitted(const Request& request, const std::string& request_id, int64_t now_ns);
  // The engine's last event; `max_tokens` as it applied.
  void Finished(const FinishEvent& event, int32_t max_tokens);
  // The RPC ended with this status code.
  void Closed(int code, int64_t now_ns);

 private:
  Tracer* const tracer_;
  RequestRecord record_;
};

}  // namespace quire
