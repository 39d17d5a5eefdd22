// Refusals of the engine, in the words of docs/errors.md.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/values/admission.h"
#include "server/call/drain_state.h"
#include "server/call/serving_model.h"

namespace quire {

// Tokens of prompt and output that one request may have here.
ContextLimit ContextLimitOf(const ServingModel& model);

// The engine names a field at the beginning of its message. A client's message has the field one
// level down: "stop.max_tokens: ...".
absl::Status WithFieldPath(const absl::Status& status);

// A failure of Tokenizer::Encode, for the client: the end of its call, or INVALID_ARGUMENT for the
// field with the text. OK stays OK.
absl::Status TextRefusal(const std::string& field, const absl::Status& status);

// A refusal of Engine::Submit, of FitToContext or of a turn's start, for the client. The drain and
// the engine's fault say why a request found no room; a tenant's limit says which, its value and
// when it frees; a deadline that cannot be met, the predicted time to first token.
absl::Status FromEngine(const absl::Status& status, const DrainState& drain, const Engine& engine);

}  // namespace quire
