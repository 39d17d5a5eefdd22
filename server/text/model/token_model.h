// TokenModel: makes token ids of pieces of text: byte-level BPE, BPE over characters, or Unigram.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/text/pattern/pattern.h"

namespace quire {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `pieces` of `text` (valid UTF-8, except within byte-level pieces). If
  // `spans` is given, it gets each id's bytes of `text`. Time: at most n log n of the text.
  virtual void Encode(std::string_view text, std::span<const Span> pieces,
                      std::vector<int32_t>* ids, std::vector<Span>* spans) const = 0;
};

}  // namespace quire
