// Names are those of the proto's ChatMessages, with dashes.
#include "clients/cpp/flags/chat_flags.h"

namespace quire::cli {
namespace {

constexpr std::string_view kChat = "Chat template";

}  // namespace

bool OfAChat(const ChatFlags& flags) {
  return flags.messages || flags.tools || flags.tool_choice || flags.documents ||
         flags.template_kwargs || flags.template_name || flags.template_time ||
         !flags.generation_prompt || flags.continue_final_message;
}

std::vector<flags::Flag> TemplateRows(ChatFlags* flags) {
  return {
      {.name = "tools",
       .group = kChat,
       .help = "functions that the model may call: a JSON list, as OpenAI's API has it",
       .target = &flags->tools,
       .placeholder = "FILE",
       .unset = "none"},
      {.name = "tool-choice",
       .group = kChat,
       .help = "auto: the model may call the tools; none: it is not shown them; required: it calls "
               "one or more; or the name of the one that it calls",
       .target = &flags->tool_choice,
       .placeholder = "CHOICE",
       .unset = "auto where the server knows how the model writes calls"},
      {.name = "documents",
       .group = kChat,
       .help = "documents to answer from: a JSON list of objects, usually with title and text",
       .target = &flags->documents,
       .placeholder = "FILE",
       .unset = "none"},
      {.name = "template-kwargs",
       .group = kChat,
       .help = "further variables of the template, such as '{\"enable_thinking\": false}'",
       .target = &flags->template_kwargs,
       .aliases = "chat-template-kwargs",
       .placeholder = "JSON",
       .unset = "none"},
      {.name = "template-name",
       .group = kChat,
       .help = "one of the model's named templates",
       .target = &flags->template_name,
       .placeholder = "NAME",
       .unset = "tool_use with tools if there is one, else default"},
      {.name = "template-time",
       .group = kChat,
       .help = "the time that the template tells, such as 2026-01-31T09:00:00Z",
       .target = &flags->template_time,
       .placeholder = "TIME",
       .unset = "the server's clock"},
  };
}

std::vector<flags::Flag> OnePromptRows(ChatFlags* flags) {
  return {
      {.name = "messages",
       .group = kChat,
       .help = "messages before TEXT, with tool calls and parts: a JSON list; TEXT is optional",
       .target = &flags->messages,
       .placeholder = "FILE",
       .unset = "none"},
      {.name = "generation-prompt",
       .group = kChat,
       .help = "end the prompt with the header of the assistant's turn",
       .target = &flags->generation_prompt},
      {.name = "continue-final-message",
       .group = kChat,
       .help = "end the prompt with the text of the last message, which the model continues",
       .target = &flags->continue_final_message},
  };
}

}  // namespace quire::cli
