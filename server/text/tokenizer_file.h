// TokenizerFile: the content of a tokenizer.json in two parts: the model with its large tables, and
// the other members, which the parts of the tokenizer read themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "server/text/model/model_spec.h"

namespace quire {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only between characters that are not of words
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // searched in the normalized text
  bool special = false;      // skipped when decoding
};

struct TokenizerFile {
  ModelSpec model;
  nlohmann::json parts;  // the members of the file but `model`
  // Tokens that are cut out of the normalized text as they are written: the user-defined symbols of
  // SentencePiece. Their ids are in the vocabulary.
  std::vector<AddedToken> symbols;
};

// NOT_FOUND, or INVALID_ARGUMENT naming file and path in it. Truncation and padding, which are no
// matter of a server, are ignored with a line in the log.
absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& path);

// The value of `added_tokens`.
absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const JsonNode& list);

}  // namespace quire
