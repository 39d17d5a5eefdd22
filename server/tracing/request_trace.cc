// Copies numbers while the request lives; all that costs time is left to the exporter's thread.
#include "server/tracing/request_trace.h"

#include <utility>

#include "server/tracing/tracer.h"

namespace quire {

RequestTrace::RequestTrace(Tracer* tracer, RequestRecord record)
    : tracer_(tracer), record_(std::move(record)) {}

RequestTrace::~RequestTrace() {
  if (record_.context.sampled) tracer_->Send(std::move(record_));
}

void RequestTrace::Submitted(const Request& request, const std::string& request_id,
                             int64_t now_ns) {
  record_.submitted_ns = now_ns;
  record_.request_id = request_id;
  record_.is_turn = request.session_turn.has_value();
  record_.temperature = request.sampling.row.temperature;
  record_.top_p = request.sampling.row.top_p;
  record_.top_k = request.sampling.row.top_k;
  record_.max_tokens = request.sampling.max_tokens;
}

void RequestTrace::Finished(const FinishEvent& event, int32_t max_tokens) {
  record_.finish = event;
  record_.finish->cookie = nullptr;  // it dies with the stream
  if (max_tokens > 0) record_.max_tokens = max_tokens;
}

void RequestTrace::Closed(int code, int64_t now_ns) {
  record_.code = code;
  record_.closed_ns = now_ns;
}

}  // namespace quire
