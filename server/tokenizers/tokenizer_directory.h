// Loads the tokenizer of a model's directory, whatever file it is in. Any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/tokenizer.h"
#include "server/text/tokenizer_file.h"

namespace quire {

// A tokenizer's file, read or converted and not yet built.
struct TokenizerSource {
  std::string path;
  TokenizerFile file;
};

// The part of LoadTokenizer that reads; errors are the same.
absl::StatusOr<TokenizerSource> ReadTokenizerSource(const std::string& directory);

// Takes the first of these files that `directory` has: tokenizer.json (with add_bos_token and
// add_eos_token of tokenizer_config.json where text_frame.h reads them), tokenizer.model (a
// SentencePiece model, with the tokens of added_tokens.json unless tokenizer_config.json lists
// them), tekken.json (Mistral). NOT_FOUND if it has none; INVALID_ARGUMENT names the first part of
// the file that is not supported.
absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& directory);

}  // namespace quire
