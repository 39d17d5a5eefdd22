// Places: where a text may be in a grammar, all at once, and PlaceReader, which moves them along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/grammar/pushdown.h"
#include "engine/grammar/stacks.h"

namespace quire {

struct Place {
  StateId state;
  uint32_t need, room;  // of a counted rule: texts that must, and may, still begin; else 0
  StackId stack;
  bool operator==(const Place&) const = default;
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

  // Tokens that suffice to complete the text; Pushdown::kNever if none do.
  int64_t CloseOf(const Place& place) const;
  int64_t CloseOf(const Places& places) const;

 private:
  struct PendingCall {
    uint32_t rank;
    RuleId rule;
    Return to;
  };

  void Add(const Place& place, Places* places) const;
  bool MayEnd(const Place& place) const;
  bool MovesOn(const Place& place) const;
  void AddCallsOf(const Place& place);

  const Pushdown& table_;
  Stacks& stacks_;
  const size_t max_places_;
  std::vector<PendingCall> pending_;
  std::vector<Return> returns_;
};

}  // namespace quire
