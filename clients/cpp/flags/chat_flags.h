// ChatFlags: what the flags of `quire generate`, `chat` and `tokenize` give the chat template
// beside the user's text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flags/flag.h"

namespace quire::cli {

// Files hold JSON lists. A flag that was not given leaves its field of the request unset.
struct ChatFlags {
  std::optional<std::string> messages;          // file of the messages before TEXT
  std::optional<std::string> tools, documents;  // files
  std::optional<std::string> tool_choice;       // "auto", "none", "required", or a tool
  std::optional<std::string> template_kwargs;   // a JSON object
  std::optional<std::string> template_name;
  std::optional<std::string> template_time;  // as in RFC 3339
  bool generation_prompt = true;
  bool continue_final_message = false;
};

// Whether a flag was given that only a chat has.
bool OfAChat(const ChatFlags& flags);

// The rows of the flags that every command with a chat has. `flags` outlives them.
std::vector<flags::Flag> TemplateRows(ChatFlags* flags);
// Those of a chat that ends with one prompt: `generate` and `tokenize`.
std::vector<flags::Flag> OnePromptRows(ChatFlags* flags);

}  // namespace quire::cli
