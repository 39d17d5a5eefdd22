// RequestRecord: a traced request's facts at its end, from which the exporter makes spans. Ids,
// numbers and codes; never text, tokens or the name of a session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/values/output_sink.h"
#include "server/tracing/trace_context.h"

namespace quire {

struct RequestRecord {
  TraceContext context;  // of the server's span
  SpanId parent_id{};    // the caller's span
  std::string trace_state;

  const char* method = "";     // of quire.v1.Inference
  const char* operation = "";  // gen_ai.operation.name
  std::string request_id;
  bool is_turn = false;  // of a session
  // As they apply.
  float temperature = 0;
  float top_p = 0;
  int32_t top_k = 0;
  int32_t max_tokens = 0;

  // Steady clock, 0 if it did not get that far.
  int64_t arrived_ns = 0;
  int64_t submitted_ns = 0;           // decoded, tokenised and offered to the engine
  int64_t closed_ns = 0;              // the RPC ended
  int code = 0;                       // the gRPC status it ended with
  std::optional<FinishEvent> finish;  // nullopt: the engine did not accept it

  int64_t bytes() const {
    return static_cast<int64_t>(sizeof *this + request_id.size() + trace_state.size());
  }
};

// A part of a request's life: one span below the server's.
struct RequestStage {
  enum class Kind : uint8_t { kArrival, kQueue, kRestore, kPrefill, kDecode };
  Kind kind = Kind::kArrival;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;         // >= begin_ns
  bool within_queue = false;  // a restore that a waiting request waited for
};
const char* Name(RequestStage::Kind kind);  // "arrival", "queue", ...

// The end of the whole request: its RPC's or the engine's, the later of the two.
int64_t EndOf(const RequestRecord& record);
// All within [arrived_ns, EndOf], in order of time; only the restore of a preempted request is
// last.
std::vector<RequestStage> StagesOf(const RequestRecord& record);
// Spans that the record makes: the server's and one for each stage.
int64_t NumSpans(const RequestRecord& record);

}  // namespace quire
