// A plan is made in three steps: of the request's fields, the chat's tools, the prompt's end.
#include "server/structured/answer_codec.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/structured/call_grammar.h"

namespace quire {
namespace {

absl::Status NotKnown(const std::string& reason, const std::string& field,
                      const std::string& unknown, const std::string& flag) {
  return Refusal(absl::StatusCode::kFailedPrecondition, reason,
                 field + ": this server does not know how the model writes " + unknown +
                     "; start it with " + flag);
}

// Whether calls are to be parsed.
absl::StatusOr<bool> DecodeChoice(const v1::ChatMessages& chat, const ServingModel& model) {
  const std::string field = "chat.tool_choice";
  const bool known = model.call_format != nullptr;
  if (!chat.has_tool_choice()) return known && !chat.tools().empty();
  const v1::ToolChoice& choice = chat.tool_choice();
  if (choice.mode() == v1::ToolChoice::MODE_NONE) return false;
  if (choice.mode() == v1::ToolChoice::MODE_UNSPECIFIED ||
      !v1::ToolChoice::Mode_IsValid(choice.mode())) {
    return InvalidField(field + ".mode", "missing, or not one that this server knows");
  }
  if (choice.has_function() != (choice.mode() == v1::ToolChoice::MODE_FUNCTION)) {
    return InvalidField(field + ".function", "is for MODE_FUNCTION, which needs it");
  }
  if (chat.tools().empty()) return InvalidField(field, "needs chat.tools");
  if (!known) {
    return NotKnown("NO_TOOL_CALL_FORMAT", field, "calls of tools", "--tool-call-parser");
  }
  return true;
}

absl::Status CheckBounds(const v1::Reasoning& in) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  if (in.has_split() && !in.split()) {
    return InvalidField("reasoning.split", "is false, and reasoning has bounds; leave one out");
  }
  for (const auto& [name, value] :
       {std::pair("max_tokens", in.max_tokens()), std::pair("min_tokens", in.min_tokens())}) {
    if (value <= kMost) continue;
    return InvalidField(std::string("reasoning.") + name,
                        "must be at most " + std::to_string(kMost));
  }
  if (in.has_max_tokens() && in.min_tokens() > in.max_tokens()) {
    return InvalidField("reasoning.min_tokens",
                        "must be at most max_tokens, " + std::to_string(in.max_tokens()));
  }
  return absl::OkStatus();
}

absl::Status DecodeReasoning(const v1::GenerateRequest& request, const ServingModel& model,
                             AnswerPlan* plan) {
  const v1::Reasoning& in = request.reasoning();
  const bool bounded = in.has_max_tokens() || in.has_min_tokens();
  if (bounded) RETURN_IF_ERROR(CheckBounds(in));
  const bool asked = bounded || in.split();
  if (asked || (!in.has_split() && request.has_chat())) plan->reasoning = model.reasoning_format;
  if (asked && plan->reasoning == nullptr) {
    return NotKnown("NO_REASONING_FORMAT", bounded ? "reasoning" : "reasoning.split", "reasoning",
                    "--reasoning-parser");
  }
  if (in.has_min_tokens()) plan->min_tokens = static_cast<int32_t>(in.min_tokens());
  if (in.has_max_tokens()) plan->max_tokens = static_cast<int32_t>(in.max_tokens());
  return absl::OkStatus();
}

// Marks that the tokenizer has as special tokens.
void AddMarks(const ServingModel& model, AnswerPlan* plan) {
  std::vector<std::string> marks;
  if (plan->calls != nullptr) marks = plan->calls->marks;
  if (plan->reasoning != nullptr) {
    marks.emplace_back(plan->reasoning->begin);
    marks.emplace_back(plan->reasoning->end);
  }
  for (const std::string& mark : marks) {
    const std::optional<int32_t> id = model.tokenizer->IdOf(mark);
    if (id && model.tokenizer->IsSpecial(*id)) plan->marks.push_back(*id);
  }
}

}  // namespace

absl::StatusOr<AnswerPlan> DecodeAnswer(const v1::GenerateRequest& request,
                                        const ServingModel& model) {
  AnswerPlan plan;
  RETURN_IF_ERROR(DecodeReasoning(request, model, &plan));
  if (request.has_chat()) {
    ASSIGN_OR_RETURN(const bool calls, DecodeChoice(request.chat(), model));
    if (calls) plan.calls = model.call_format;
  }
  if (model.tokenizer != nullptr) AddMarks(model, &plan);
  return plan;
}

absl::StatusOr<std::optional<Structure>> AddTools(const v1::ChatMessages& chat, AnswerPlan* plan) {
  if (plan->calls == nullptr) return std::nullopt;
  ToolNames names;
  std::vector<CallableTool> wanted;
  const v1::ToolChoice& choice = chat.tool_choice();
  const bool one = choice.mode() == v1::ToolChoice::MODE_FUNCTION;
  const bool required = one || choice.mode() == v1::ToolChoice::MODE_REQUIRED;
  for (int i = 0; i < chat.tools_size(); ++i) {
    const std::string field = "chat.tools[" + std::to_string(i) + "]";
    CallableTool tool = ReadTool(chat.tools(i));
    if (tool.name.empty() && chat.has_tool_choice()) {
      return InvalidField(field, "has no name, neither in function nor of its own");
    }
    if (tool.name.empty()) continue;
    if (!names.insert(tool.name).second) {
      return InvalidField(field, "has the name '" + tool.name + "', which another tool has too");
    }
    if (!required || (one && choice.function() != tool.name)) continue;
    if (!tool.TakesObject()) {
      return InvalidField(field, "has parameters that are no JSON Schema of an object");
    }
    wanted.push_back(std::move(tool));
  }
  plan->tools = std::make_shared<const ToolNames>(std::move(names));
  if (one && wanted.empty()) {
    return InvalidField("chat.tool_choice.function",
                        "no tool has the name '" + choice.function() + "'");
  }
  if (!required) return std::nullopt;
  return Structure{CallGrammar(*plan->calls, std::move(wanted), /*many=*/!one), "chat.tools"};
}

void AddPromptEnd(std::string_view prompt, AnswerPlan* plan) {
  if (plan->reasoning != nullptr) plan->start = StartAfter(*plan->reasoning, prompt);
}

}  // namespace quire
