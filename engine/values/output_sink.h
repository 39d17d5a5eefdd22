// OutputSink: where the engine delivers. One call per retired step, on the scheduler thread, with
// every token and every end of that step; it must not block, throw or call back into the engine.
#pragma once

#include <cstdint>
#include <span>

#include "engine/values/request.h"
#include "engine/values/session.h"

namespace quire {

struct TokenEvent {
  RequestId id = 0;
  void* cookie = nullptr;
  int32_t token = 0;
  int32_t index = 0;  // 0-based position in the output
  float logprob = 0.0f;
};

// Exactly one per accepted request, after its last TokenEvent; nothing follows it.
struct FinishEvent {
  RequestId id = 0;
  void* cookie = nullptr;
  FinishReason reason = FinishReason::kNone;
  int32_t stop_token = -1;  // for kEos and kStopToken
  Usage usage;
  RequestTimings timings;
  Residency residency;
  int32_t position = 0;  // of a turn that was appended: its session's tokens; else 0
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;
  // Tokens are in output order per request; a request's finish comes after all its tokens. Both
  // spans are valid only during the call.
  virtual void OnStep(std::span<const TokenEvent> tokens,
                      std::span<const FinishEvent> finishes) = 0;
};

}  // namespace quire
