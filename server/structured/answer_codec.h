// How a request wants its answer told apart: reasoning, and calls of the chat's tools.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/answer_parts/answer_reader.h"
#include "server/call/serving_model.h"
#include "server/structured/structured_codec.h"

namespace quire {

namespace v1 {
class ChatMessages;
class GenerateRequest;
}  // namespace v1

// The part of a plan that needs neither a tool's text nor the prompt's. FAILED_PRECONDITION if the
// server does not know the model's format (NO_REASONING_FORMAT, NO_TOOL_CALL_FORMAT),
// INVALID_ARGUMENT with the field.
absl::StatusOr<AnswerPlan> DecodeAnswer(const v1::GenerateRequest& request,
                                        const ServingModel& model);

// Adds the names of the chat's tools, which DecodeChat has checked, to a plan with calls, and
// returns the structure of an answer that must be a call. INVALID_ARGUMENT for a tool without a
// name if the chat chose how tools are used, a name that is there twice, and the choice of a name
// that no tool has.
absl::StatusOr<std::optional<Structure>> AddTools(const v1::ChatMessages& chat, AnswerPlan* plan);

// Adds what a prompt that ends with this text says of the reasoning.
void AddPromptEnd(std::string_view prompt, AnswerPlan* plan);

}  // namespace quire
