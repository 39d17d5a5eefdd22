// The tokenizer, then the templates.
#include "server/start/text_parts.h"

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/tokenizers/tokenizer_directory.h"

namespace quire {

absl::StatusOr<TextParts> LoadText(const std::string& directory, const std::string& file) {
  TextParts parts;
  if (directory.empty()) return parts;
  ASSIGN_OR_RETURN(parts.tokenizer, LoadTokenizer(directory));
  ASSIGN_OR_RETURN(parts.chat_templates, ChatTemplates::LoadEither(file, directory));
  if (const absl::Status usable = parts.chat_templates.Check(); !usable.ok()) {
    Log(Severity::kWarning, "a chat template is not usable: chats that take it will be refused",
        {{"reason", std::string(usable.message())}});
  }
  return parts;
}

}  // namespace quire
