// PinnedNodes: the nodes of the prefix tree that pins hold, each counted once, however many pins
// share it. Like the tree it counts a chain at its deepest node: adding or removing a pin takes
// time only for the nodes that no other pin shares. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/schedule/kv/prefix_tree.h"

namespace quire {

class PinnedNodes {
 public:
  explicit PinnedNodes(const PrefixTree& tree) : tree_(tree) {}

  int32_t size() const { return static_cast<int32_t>(counts_.size()); }
  // Nodes that a pin of the chain to `node` would add; kNoNode: none.
  int32_t Cost(NodeId node) const {
    int32_t cost = 0;
    for (; IsNode(node) && !counts_.contains(node); node = tree_.Parent(node)) ++cost;
    return cost;
  }
  // Nodes that are not of the chain to `node`; kNoNode: all.
  int32_t SizeBeside(NodeId node) const {
    return size() - (IsNode(node) ? tree_.Depth(node) - Cost(node) : 0);
  }
  // The node is held as long as it is counted here.
  void Add(NodeId node) {
    while (IsNode(node) && counts_[node]++ == 0) node = tree_.Parent(node);
  }
  // Call this before the tree's Release.
  void Remove(NodeId node) {
    for (; IsNode(node); node = tree_.Parent(node)) {
      const auto found = counts_.find(node);
      if (--found->second > 0) return;
      counts_.erase(found);
    }
  }

 private:
  bool IsNode(NodeId node) const { return node != kNoNode && tree_.Depth(node) > 0; }

  const PrefixTree& tree_;
  std::unordered_map<NodeId, int32_t> counts_;  // pins of the node, and pinned children
};

}  // namespace quire
