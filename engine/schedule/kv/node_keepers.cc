// Counts that spread towards the root.
#include "engine/schedule/kv/node_keepers.h"

#include <algorithm>

#include "engine/schedule/kv/node_tree.h"
#include "kernels/check.h"

namespace quire {

void NodeKeepers::Grow(int32_t num_nodes) { keepers_.Grow(num_nodes, keepers_.num_ids()); }

void NodeKeepers::Add(NodeId node, uint64_t keeper) {
  CHECK_GT(tree_.Depth(node), 0);
  if (keeper >= static_cast<uint64_t>(keepers_.num_ids())) {
    const int32_t num_keepers = std::max(2 * keepers_.num_ids(), static_cast<int32_t>(keeper) + 1);
    keepers_.Grow(keepers_.num_lists(), num_keepers);
  }
  CHECK(!keepers_.Contains(static_cast<int32_t>(keeper)));
  keepers_.PushBack(node, static_cast<int32_t>(keeper));
  for (NodeId id = node; id != kNoNode && nodes_[id].keeps++ == 0;) id = tree_.Parent(id);
}

NodeId NodeKeepers::Remove(NodeId node, uint64_t keeper) {
  CHECK(keeper < static_cast<uint64_t>(keepers_.num_ids()));
  CHECK_EQ(keepers_.ListOf(static_cast<int32_t>(keeper)), node);
  keepers_.Erase(static_cast<int32_t>(keeper));
  while (node != kNoNode && --nodes_[node].keeps == 0) node = tree_.Parent(node);
  return node;
}

void NodeKeepers::MoveUp(NodeId id) {
  if (nodes_[id].keeps == 0) return;
  CHECK_EQ(nodes_[id].keeps, keepers_.size(id));
  const NodeId parent = tree_.Parent(id);
  const bool to_root = tree_.IsRoot(parent);
  --nodes_[parent].keeps;  // the child
  if (!to_root) nodes_[parent].keeps += nodes_[id].keeps;
  nodes_[id].keeps = 0;
  for (int32_t keeper = keepers_.Front(id); keeper != IdLists::kNone; keeper = keepers_.Front(id)) {
    keepers_.Erase(keeper);
    if (!to_root) keepers_.PushBack(parent, keeper);
    if (keeper_ != nullptr) keeper_->OnLost(keeper, to_root ? kNoNode : parent);
  }
}

void NodeKeepers::CheckInvariants() const {
  for (NodeId id = 0; id < tree_.num_nodes(); ++id) {
    int32_t kept = 0;
    for (NodeId child = tree_.FirstChild(id); child != kNoNode; child = tree_.NextSibling(child)) {
      kept += Kept(child);
    }
    CHECK_EQ(nodes_[id].keeps, keepers_.size(id) + kept);
    CHECK((tree_.InUse(id) && !tree_.IsRoot(id)) || keepers_.size(id) == 0);
  }
}

}  // namespace quire
