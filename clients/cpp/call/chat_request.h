// ReadChat: the flags about a chat, and the files that they name, as the messages of the proto.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "clients/cpp/flags/invocation.h"
#include "quire/v1/inference.pb.h"

namespace quire::cli {

// Whether the prompt is a chat for the model's template.
bool IsChat(const PromptFlags& flags);

// Whether TEXT, or stdin in its place, belongs to the prompt.
bool TakesText(const PromptFlags& flags);

// All of the chat but TEXT: the system's message, those of --messages, tools, documents and what
// the template is told; empty if the prompt is no chat. Reads each file once, so a pipe will do.
// INVALID_ARGUMENT names the flag, the file and the entry that is wrong.
absl::StatusOr<v1::ChatMessages> ReadChat(const PromptFlags& flags);

// Adds TEXT as the user's message.
void AddUserMessage(const std::string& text, v1::ChatMessages* chat);

}  // namespace quire::cli
