// TokenTexts: the text of each token, by the `decoder` of a tokenizer. Nearly all of what a decoder
// does depends on one token alone and is done once, at load; the rest is left to DecodeStream.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"

namespace quire {

class TokenTexts {
 public:
  // `decoder` is the value of that name; `written[id]` is a token's text in the file, "" for ids
  // without one; `special[id]` says which tokens are left out on request. INVALID_ARGUMENT names
  // the first part of the decoder that is not supported.
  static absl::StatusOr<TokenTexts> Make(const JsonNode& decoder, std::vector<std::string> written,
                                         std::vector<bool> special);

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  bool Has(int32_t id) const { return id >= 0 && id < size() && has_[id]; }
  bool IsSpecial(int32_t id) const { return id >= 0 && id < size() && special_[id]; }
  // `id` has a token. Bytes of a byte-level token may be part of a code point. The token that a
  // text begins with may have another text.
  std::string_view Text(int32_t id, bool first) const {
    return first && !first_texts_.empty() ? first_texts_[id] : texts_[id];
  }
  // Whether tokens are parts of one run of bytes, or texts of whole code points.
  bool byte_level() const { return byte_level_; }
  // Whether the token is one byte of a run that becomes text as a whole.
  bool IsByte(int32_t id) const { return !is_byte_.empty() && is_byte_[id]; }
  // The whole text loses up to `strip_count` of this character at its begin.
  const std::string& strip() const { return strip_; }
  int strip_count() const { return strip_count_; }

 private:
  class Reader;

  std::vector<std::string> texts_;        // by id; of a byte token the byte
  std::vector<std::string> first_texts_;  // empty: equal to texts_
  std::vector<bool> has_, special_;
  std::vector<bool> is_byte_;  // empty: no byte fallback
  bool byte_level_ = false;
  std::string strip_;
  int strip_count_ = 0;
};

}  // namespace quire
