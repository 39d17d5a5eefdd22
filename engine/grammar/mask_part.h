// MaskPart: the tokens that one state of a grammar allows, whatever the stack below it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/grammar/guide_vocabulary.h"
#include "engine/grammar/places.h"
#include "engine/grammar/pushdown.h"

namespace quire {

// Tokens after which equally many tokens complete the text, or bring it to the unknown stack.
struct TokenGroup {
  int64_t close;
  std::vector<int32_t> tokens;  // ids, or where that is longer than a mask:
  std::vector<uint32_t> words;  // a bit a token

  void AddTo(uint32_t* mask) const;
};

// A token that ends the rule of the state goes on in what the stack returns to. Such tokens are not
// in the part: `exits` says where in the trie the part that knows the return begins.
struct MaskPart {
  uint64_t id = 0;                 // of the MaskStore
  std::vector<TokenGroup> groups;  // by ascending close
  std::vector<uint32_t> exits;     // nodes whose last byte the return must read
  size_t bytes() const;
};

// The part of a place whose stack is unknown (Stacks::kBottom).
MaskPart MakeMaskPart(const Pushdown& table, const GuideVocabulary& vocabulary, const Place& place);
// The part that the exits of another leave to a return to `state`.
MaskPart MakeMaskPart(const Pushdown& table, const GuideVocabulary& vocabulary,
                      const std::vector<uint32_t>& exits, StateId state);

}  // namespace quire
