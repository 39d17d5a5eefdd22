// Stacks are never removed: a text that comes back to a nesting finds its stack again.
#include "engine/grammar/stacks.h"

#include <algorithm>

namespace quire {

StackId Stacks::Push(std::vector<Return>* returns) {
  for (size_t i = 0; i < returns->size(); ++i) {
    const Return each = (*returns)[i];
    if (table_.states[each.state].moves) continue;
    if (each.below == kBottom) {
      if (returns->size() == 1) return kBottom;
      continue;
    }
    const auto outer = ReturnsOf(each.below);
    (*returns)[i] = outer[0];
    returns->insert(returns->end(), outer.begin() + 1, outer.end());
  }
  std::sort(returns->begin(), returns->end());
  returns->erase(std::unique(returns->begin(), returns->end()), returns->end());

  const auto next = static_cast<StackId>(stacks_.size());
  StackId* id = returns->size() == 1 ? &single_.try_emplace(returns->front(), next).first->second
                                     : &several_.try_emplace(*returns, next).first->second;
  if (*id != next) return *id;
  int64_t close = Pushdown::kNever;
  for (const Return& each : *returns) {
    close = std::min(close, table_.states[each.state].close + stacks_[each.below].close);
  }
  stacks_.push_back(
      {static_cast<uint32_t>(returns_.size()), static_cast<uint32_t>(returns->size()), close});
  returns_.insert(returns_.end(), returns->begin(), returns->end());
  return next;
}

}  // namespace quire
