// Parents in records, children in lists and in a hash index.
#include "engine/schedule/kv/node_tree.h"

#include "kernels/check.h"

namespace quire {

NodeTree::NodeTree(NodeRecords& records, int32_t block_size, uint64_t hash_seed)
    : block_size_(block_size), nodes_(records), index_(0, block_size, hash_seed), children_(0, 0) {}

void NodeTree::Grow(int32_t count) {
  const int32_t before = num_nodes();
  nodes_.resize(count);
  free_.reserve(count);
  for (NodeId id = count - 1; id >= before; --id) free_.push_back(id);
  index_.Grow(count);
  children_.Grow(count, count);
}

NodeId NodeTree::Root(RootKey key) const {
  const auto found = roots_.find(key);
  return found == roots_.end() ? kNoNode : found->second;
}

int32_t NodeTree::NumTokens(NodeId id) const {
  const NodeRecord& node = nodes_[id];
  return node.filled > 0 ? (node.depth - 1) * block_size_ + node.filled : node.depth * block_size_;
}

void NodeTree::Chain(NodeId node, std::vector<NodeId>& chain) const {
  chain.resize(nodes_[node].depth);
  for (auto place = chain.rbegin(); place != chain.rend(); ++place) {
    *place = node;
    node = nodes_[node].parent;
  }
}

NodeId NodeTree::FirstLeaf(NodeId id) const {
  while (children_.size(id) > 0) id = children_.Front(id);
  return id;
}

NodeId NodeTree::NextInPostOrder(NodeId id, NodeId top) const {
  if (id == top) return kNoNode;
  const NodeId sibling = children_.Next(id);
  return sibling == kNoNode ? nodes_[id].parent : FirstLeaf(sibling);
}

NodeId NodeTree::Take(NodeId parent) {
  CHECK(!full());
  const NodeId id = free_.back();
  free_.pop_back();
  nodes_[id].parent = parent;
  nodes_[id].depth = 0;
  if (parent == kNoNode) return id;
  nodes_[id].depth = nodes_[parent].depth + 1;
  nodes_[id].account = nodes_[parent].account;
  children_.PushBack(parent, id);
  return id;
}

NodeId NodeTree::AddRoot(RootKey key, AccountId account) {
  const NodeId id = Take(kNoNode);
  nodes_[id].key = key;
  nodes_[id].account = account;
  roots_.emplace(key, id);
  return id;
}

NodeId NodeTree::AddChild(NodeId parent, std::span<const int32_t> tokens) {
  const NodeId id = Take(parent);
  index_.Insert(id, parent, tokens);
  return id;
}

NodeId NodeTree::AddTail(NodeId parent, int32_t filled) {
  CHECK(filled > 0 && filled < block_size_);
  const NodeId id = Take(parent);
  nodes_[id].filled = filled;
  return id;
}

void NodeTree::Remove(NodeId id) {
  CHECK_EQ(children_.size(id), 0);
  if (IsRoot(id)) {
    roots_.erase(nodes_[id].key);
  } else {
    if (!IsTail(id)) index_.Erase(id);
    children_.Erase(id);
  }
  nodes_[id] = NodeRecord();
  free_.push_back(id);
}

void NodeTree::CheckInvariants() const {
  size_t num_roots = 0;
  size_t num_unused = 0;
  for (NodeId id = 0; id < num_nodes(); ++id) {
    num_unused += !InUse(id);
    num_roots += IsRoot(id);
    if (InUse(id)) CheckNode(id);
  }
  CHECK_EQ(num_roots, roots_.size());
  CHECK_EQ(num_unused, free_.size());
  for (const NodeId id : free_) CHECK(!InUse(id));
}

void NodeTree::CheckNode(NodeId id) const {
  const NodeRecord& node = nodes_[id];
  int32_t count = 0;
  for (NodeId child = FirstChild(id); child != kNoNode; child = NextSibling(child)) ++count;
  CHECK_EQ(count, NumChildren(id));
  if (IsRoot(id)) {
    CHECK(node.parent == kNoNode && !children_.Contains(id) && !index_.Contains(id));
    CHECK_EQ(roots_.at(node.key), id);
    return;
  }
  CHECK_EQ(children_.ListOf(id), node.parent);
  CHECK_EQ(node.depth, nodes_[node.parent].depth + 1);
  CHECK_EQ(node.account, nodes_[node.parent].account);
  CHECK(!IsTail(node.parent));
  if (IsTail(id)) {
    CHECK(node.filled < block_size_ && NumChildren(id) == 0 && !index_.Contains(id));
  } else {
    CHECK_EQ(index_.Find(node.parent, index_.TokensOf(id)), id);
  }
}

}  // namespace quire
