// Places: where a text may be in a grammar, all at once, and PlaceReader, which moves them along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "engine/grammar/pushdown.h"
#include "engine/grammar/stacks.h"

namespace quire {

struct Place {
  StateId state;
  uint32_t need, room;  // of a counted rule: texts that must, and may, still begin; else 0
  StackId stack;
  bool operator==(const Place&) const = default;
  template <class H>
  friend H AbslHashValue(H hash, const Place& p) {
    return H::combine(std::move(hash), p.state, p.need, p.room, p.stack);
  }
};

struct Places {
  absl::InlinedVector<Place, 4> list;  // each once
  bool complete = false;               // the bottom of the stack was reached: the text may end here
  bool dead() const { return list.empty() && !complete; }
};

// The bytes of a text are read by Call, Read, Call, Read, ... One thread.
class PlaceReader {
 public:
  // All outlive the reader. Places beyond max_places are dropped: the texts that they alone allow
  // are then refused, never the other way round.
  PlaceReader(const Pushdown& table, Stacks* stacks, size_t max_places)
      : table_(table), stacks_(*stacks), max_places_(max_places) {}

  // A place at the beginning of a rule.
  Place Begin(RuleId rule, StackId stack) const;
  // Adds the places within the rules that may be called next.
  void Call(Places* places);
  // The places after `byte`, those that follow an ended rule included.
  void Read(const Places& places, uint8_t byte, Places* out);
  // Adds the places that follow where a rule may end, and removes those where it can only end.
  void TakeReturns(Places* places);

  // Whether the rule of the place may end there.
  bool MayEnd(const Place& place) const;
  // Elementary steps so far, about 10 ns each: the same for the same calls.
  size_t steps() const { return steps_; }
  // Tokens that suffice to complete the text; Pushdown::kNever if none do.
  int64_t CloseOf(const Place& place) const;
  int64_t CloseOf(const Places& places) const;

 private:
  struct PendingCall {
    uint32_t rank;
    RuleId rule;
    Return to;
  };

  void Add(const Place& place, Places* places);
  bool MovesOn(const Place& place) const;
  void AddCallsOf(const Place& place);

  const Pushdown& table_;
  Stacks& stacks_;
  const size_t max_places_;
  size_t steps_ = 0;
  absl::flat_hash_set<Place> seen_;  // of a long list that is being made; else empty
  std::vector<PendingCall> pending_;
  std::vector<Return> returns_;
};

}  // namespace quire
