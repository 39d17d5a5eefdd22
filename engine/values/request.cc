// Names and kinds of finish reasons; the names appear in metrics and logs.
#include "engine/values/request.h"

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
    case FinishReason::kDeadline: return "DEADLINE";
    case FinishReason::kCancelled: return "CANCELLED";
    case FinishReason::kSlowReader: return "SLOW_READER";
    case FinishReason::kDraining: return "DRAINING";
    case FinishReason::kNumeric: return "NUMERIC";
    case FinishReason::kEngineFault: return "ENGINE_FAULT";
  }
  return "UNKNOWN";
}

bool IsRegularEnd(FinishReason reason) {
  return reason == FinishReason::kEos || reason == FinishReason::kStopToken ||
         reason == FinishReason::kStopText || reason == FinishReason::kMaxTokens ||
         reason == FinishReason::kContextLimit || reason == FinishReason::kLoop ||
         reason == FinishReason::kNoToken;
}

}  // namespace quire
