// TokenizerFile: the checked content of a tokenizer.json. Reading refuses every part that the
// tokenizer does not implement, with its path in the file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool lstrip = false;      // takes the white space before it
  bool rstrip = false;      // takes the white space after it
  bool normalized = false;  // searched in the normalized text
  bool special = false;     // skipped when decoding
};

// One step of the pre-tokenizer, in order.
struct SplitStep {
  enum class Kind : uint8_t { kPattern, kDigits } kind = Kind::kPattern;
  std::string pattern;
  bool individual_digits = false;
};

struct TokenizerFile {
  std::vector<std::pair<std::string, int32_t>> vocabulary;  // as written: in the byte alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  bool ignore_merges = false;

  std::vector<AddedToken> added_tokens;
  bool nfc = false;
  bool add_prefix_space = false;
  std::vector<SplitStep> split_steps;

  bool trim_offsets = false;  // of white space
  bool trim_keeps_prefix_space = false;
  std::vector<int32_t> ids_before, ids_after;  // special ids around a text
};

// NOT_FOUND, or INVALID_ARGUMENT naming file and path in it.
absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& path);

}  // namespace quire
