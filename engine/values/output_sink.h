// OutputSink: receives the events of requests from the engine, on the scheduler thread. A sink must
// not block, throw or call back into the engine; the spans are valid only during the call.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/values/request.h"
#include "engine/values/session.h"

namespace quire {

// Exactly one per submitted turn of a session, before its other events. Not OK: the turn is
// refused, its session is unharmed, and no other event follows (engine/schedule/turns.h lists the
// errors).
struct TurnStart {
  RequestId id = 0;
  void* cookie = nullptr;
  absl::Status status;
  int32_t prompt_tokens = 0;      // the session's included
  int32_t max_tokens = 0;         // as it applies, defaults included
  int64_t predicted_ttft_ns = 0;  // Request::predicted_ttft_ns
};

struct TokenEvent {
  RequestId id = 0;
  void* cookie = nullptr;
  int32_t token = 0;
  int32_t index = 0;  // 0-based position in the output
  float logprob = 0.0f;
};

// A part of a request's readings. A request that was preempted tells some again, from an earlier
// position on.
struct ReadingEvent {
  RequestId id = 0;
  void* cookie = nullptr;
  // `begin` is in the words of the same OnReadings.
  StepReading reading;
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
  // Called before OnStep with the turns that the scheduler took in since the last call.
  virtual void OnTurnStarts(std::span<const TurnStart> starts) = 0;
  // Called before OnStep with the readings of the same tokens: one of kind kDrawn for each token of
  // a request that asks for it, in the order of its tokens.
  virtual void OnReadings(std::span<const ReadingEvent> readings,
                          std::span<const uint32_t> words) = 0;
  // Called at most once per turn of the engine's loop. Tokens are in output order per request; a
  // request's finish comes after all its tokens.
  virtual void OnStep(std::span<const TokenEvent> tokens,
                      std::span<const FinishEvent> finishes) = 0;
};

}  // namespace quire
