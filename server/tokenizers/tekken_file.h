// Converts tekken.json, the tokenizer file of Mistral, to the parts of a tokenizer.json. Any
// thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/text/tokenizer_file.h"

namespace quire {

// NOT_FOUND, or INVALID_ARGUMENT naming file and path in it.
absl::StatusOr<TokenizerFile> ReadTekkenFile(const std::string& path);

}  // namespace quire
