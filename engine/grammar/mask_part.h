// MaskPart: the tokens that one state of a grammar allows, whatever the stack below it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/grammar/guide_vocabulary.h"
#include "engine/grammar/places.h"
#include "engine/grammar/pushdown.h"

namespace quire {

// Tokens after which equally many tokens complete the text, or bring it to the unknown stack, and
// which begin equally many texts of the counted rule that the part is of.
struct TokenGroup {
  int64_t close;
  uint32_t used;                // 0 for parts that are not near the end of a count
  std::vector<int32_t> tokens;  // ids, or where that is longer than a mask:
  std::vector<uint32_t> words;  // a bit a token

  void AddTo(uint32_t* mask) const;
};

// A token that ends the rule of the state goes on in what the stack returns to. Such tokens are not
// in the part: `exits` says where in the trie the part that knows the return begins.
struct MaskExit {
  uint32_t node;  // whose last byte the return must read
  uint32_t used;  // as of groups
};

struct MaskPart {
  uint64_t id = 0;                 // of the MaskStore
  std::vector<TokenGroup> groups;  // by ascending close
  std::vector<MaskExit> exits;
  size_t steps = 0;  // that it took to make
  size_t bytes() const;
};

// The part of a place whose stack is unknown (Stacks::kBottom). With `by_use` the place is one of a
// counted rule, with room for the longest token: groups and exits say how much of it they use.
MaskPart MakeMaskPart(const Pushdown& table, const GuideVocabulary& vocabulary, const Place& place,
                      bool by_use);
// The part that the exits of another leave to a return to `state`.
MaskPart MakeMaskPart(const Pushdown& table, const GuideVocabulary& vocabulary,
                      const std::vector<MaskExit>& exits, StateId state);

}  // namespace quire
