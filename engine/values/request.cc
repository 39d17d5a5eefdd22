// Names and kinds of finish reasons; the names appear in metrics and logs.
#include "engine/values/request.h"

#include <string_view>

namespace quire {

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "NONE";
    case FinishReason::kEos: return "EOS";
    case FinishReason::kStopToken: return "STOP_TOKEN";
    case FinishReason::kStopText: return "STOP_TEXT";
    case FinishReason::kMaxTokens: return "MAX_TOKENS";
    case FinishReason::kContextLimit: return "CONTEXT_LIMIT";
    case FinishReason::kLoop: return "LOOP";
    case FinishReason::kNoToken: return "NO_TOKEN";
    case FinishReason::kTruncated: return "TRUNCATED";
    case FinishReason::kDeadline: return "DEADLINE";
    case FinishReason::kCancelled: return "CANCELLED";
    case FinishReason::kSlowReader: return "SLOW_READER";
    case FinishReason::kDraining: return "DRAINING";
    case FinishReason::kNumeric: return "NUMERIC";
    case FinishReason::kEngineFault: return "ENGINE_FAULT";
  }
  return "UNKNOWN";
}

const char* FieldWord(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopText:
    case FinishReason::kLoop: return "stop";
    case FinishReason::kMaxTokens:
    case FinishReason::kContextLimit:
    case FinishReason::kNoToken:
    case FinishReason::kTruncated: return "length";
    case FinishReason::kNumeric:
    case FinishReason::kEngineFault: return "error";
    default: return "abort";
  }
}

bool IsRegularEnd(FinishReason reason) {
  const std::string_view word = FieldWord(reason);
  return word == "stop" || word == "length";
}

}  // namespace quire
