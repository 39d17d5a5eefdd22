// TextParts: the parts of a model that convert between text and tokens.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/template/chat_templates.h"
#include "server/text/tokenizer.h"

namespace quire {

struct TextParts {
  std::unique_ptr<const Tokenizer> tokenizer;  // null: --skip-tokenizer-init
  ChatTemplates chat_templates;
};

// Reads them from the model's `directory`, which may be empty: no parts. `file`: a chat template in
// the place of the model's; empty: none. Errors: LoadTokenizer's and those of
// ChatTemplates::LoadEither. A template that is not usable is no error; the log says why. Any
// thread.
absl::StatusOr<TextParts> LoadText(const std::string& directory, const std::string& file);

}  // namespace quire
