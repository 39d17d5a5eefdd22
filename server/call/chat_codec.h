// ChatCodec: from the chat of a request to a prompt's text, by one of the model's templates.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/template/chat_templates.h"

namespace quire {

namespace v1 {
class ChatMessages;
}  // namespace v1

// A chat with every field checked. Lives no longer than the templates that it was decoded for.
struct DecodedChat {
  ChatInput input;
  const ChatTemplate* chat_template = nullptr;
};

// The part of DecodeChat's checks that reads no text: the template, the counts, the numbers.
absl::Status CheckChat(const v1::ChatMessages& chat, const ChatTemplates& templates);

// INVALID_ARGUMENT with the field; FAILED_PRECONDITION (ErrorInfo NO_CHAT_TEMPLATE) without a
// template or for a refused one, with the reason. Costs time linear in the chat, and up to 60
// times its memory: a value may take 3 bytes of JSON and 180 of memory.
absl::StatusOr<DecodedChat> DecodeChat(const v1::ChatMessages& chat,
                                       const ChatTemplates& templates);

// INVALID_ARGUMENT with the template's reason.
absl::StatusOr<std::string> RenderChat(const DecodedChat& chat);

}  // namespace quire
