// Stacks: the stacks of states to return to that the ways of reading a text share. Equal stacks
// have equal ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/grammar/pushdown.h"

namespace quire {

using StackId = uint32_t;

// Where the innermost rule returns to: a state, with the stack below.
struct Return {
  StateId state;
  StackId below;
  auto operator<=>(const Return&) const = default;
  template <class H>
  friend H AbslHashValue(H hash, const Return& r) {
    return H::combine(std::move(hash), r.state, r.below);
  }
};

// A stack has several returns if several callers wait for the same text of the same rule. Grows
// with the distinct stacks that a text needs: by its nesting, not by its length. One thread.
class Stacks {
 public:
  static constexpr StackId kBottom = 0;

  explicit Stacks(const Pushdown& table) : table_(table) { stacks_.push_back({}); }

  // The stack that returns to any of `returns`, which it sorts. A return to the end of a rule is
  // replaced by what that rule returns to, so that a rule that ends with a call of itself needs no
  // more stack with each.
  StackId Push(std::vector<Return>* returns);
  std::span<const Return> ReturnsOf(StackId id) const {
    return std::span(returns_).subspan(stacks_[id].first, stacks_[id].size);
  }
  // Tokens that suffice to finish all rules of the stack.
  int64_t CloseOf(StackId id) const { return stacks_[id].close; }
  size_t size() const { return stacks_.size(); }

 private:
  struct Stack {
    uint32_t first = 0, size = 0;  // of returns_
    int64_t close = 0;
  };

  const Pushdown& table_;
  std::vector<Stack> stacks_;
  std::vector<Return> returns_;
  absl::flat_hash_map<Return, StackId> single_;  // stacks of one return
  absl::flat_hash_map<std::vector<Return>, StackId> several_;
};

}  // namespace quire
