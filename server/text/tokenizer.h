// Tokenizer: makes token ids of text and text of token ids, as a Hugging Face tokenizer.json says:
// added tokens are cut out, the rest is normalized, cut into pieces, and given to the model.
// Immutable after Load; any number of threads may use it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/decode/token_texts.h"
#include "server/text/normalize/normalized_text.h"
#include "server/text/tokenizer_file.h"

namespace quire {

class Tokenizer {
 public:
  // Reads a tokenizer.json. INVALID_ARGUMENT names the first unsupported part.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(const std::string& path);
  // Builds the tokenizer of a file that was read, or converted, before; errors name `path`.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Make(const TokenizerFile& file,
                                                               const std::string& path);
  ~Tokenizer();

  // Appends the ids of `text` (valid UTF-8, else INVALID_ARGUMENT with the byte offset). Special
  // tokens in the text become their ids only with parse_special; other added tokens always do.
  // add_special applies the post-processor, which adds tokens such as BOS. If `offsets` is given,
  // it gets one entry per id. Time: at most n log n of the text, and what TextBudget leaves to
  // the patterns: RESOURCE_EXHAUSTED beyond it. CANCELLED or DEADLINE_EXCEEDED once the StopMark of
  // the thread is raised. Appends nothing on an error.
  absl::Status Encode(std::string_view text, bool add_special, bool parse_special,
                      std::vector<int32_t>* ids, std::vector<TokenOffset>* offsets = nullptr) const;
  // The bytes of one token within a text; empty for special tokens with skip_special, and for ids
  // without a token.
  std::string_view TokenBytes(int32_t id, bool skip_special = true) const;
  // The text of the ids, with U+FFFD for invalid UTF-8.
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const;
  // For text that is made token by token (DecodeStream).
  const TokenTexts& texts() const;

  // The id of the token with exactly this text, added or in the vocabulary; nullopt if none.
  std::optional<int32_t> IdOf(std::string_view token) const;
  bool IsSpecial(int32_t id) const;
  int32_t size() const;  // largest id + 1

 private:
  struct Data;
  class EncodePass;
  explicit Tokenizer(std::unique_ptr<const Data> data);
  std::unique_ptr<const Data> data_;
};

}  // namespace quire
