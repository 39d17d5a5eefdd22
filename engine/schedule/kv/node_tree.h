// NodeTree: the shape of the prefix tree. A node stands for one block of tokens after all the
// tokens of its ancestors. Children are found by (parent, tokens), compared exactly, so that a
// match is a fact and not a likelihood. Each tenant has its own root and shares no nodes.
//
// A tail is a node for a partly filled block: it has no children and no search finds it. Node ids
// are small integers; the id of a removed node is used again. One thread. Only Grow and a new
// tenant allocate.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/schedule/containers/child_index.h"
#include "engine/schedule/containers/id_lists.h"
#include "engine/schedule/kv/node_record.h"

namespace quire {

class NodeTree {
 public:
  // `records`, which outlives this, is empty; the tree gives it one record for each node.
  // `hash_seed` is ChildIndex's.
  NodeTree(NodeRecords& records, int32_t block_size, uint64_t hash_seed);

  // --- Room. All ids are below num_nodes(), in use or not.
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }
  bool full() const { return free_.empty(); }
  // Makes room for `count` nodes in all. O(count).
  void Grow(int32_t count);

  // --- Looking.
  NodeId Root(RootKey key) const;  // kNoNode if there is none
  // The child of `parent` that spells `tokens` (a whole block), no tail; kNoNode if there is none.
  NodeId Child(NodeId parent, std::span<const int32_t> tokens) const {
    return index_.Find(parent, tokens);
  }
  NodeId Parent(NodeId node) const { return nodes_[node].parent; }  // kNoNode: `node` is a root
  // The number of nodes from the root to this one, without the root; 0: this is a root.
  int32_t Depth(NodeId node) const { return nodes_[node].depth; }
  bool IsRoot(NodeId node) const { return nodes_[node].depth == 0; }
  bool IsTail(NodeId node) const { return nodes_[node].filled > 0; }
  bool InUse(NodeId node) const { return nodes_[node].depth >= 0; }
  // Tokens from the root to the end of the node: depth * block_size, except for a tail.
  int32_t NumTokens(NodeId node) const;
  RootKey Key(NodeId root) const { return nodes_[root].key; }
  // Of the node's tenant.
  AccountId AccountOf(NodeId node) const { return nodes_[node].account; }
  // Of a node that is neither a root nor a tail. Valid until the tree changes.
  std::span<const int32_t> TokensOf(NodeId node) const { return index_.TokensOf(node); }
  // Fills `chain` with the nodes from depth 1 to `node`.
  void Chain(NodeId node, std::vector<NodeId>& chain) const;
  int32_t NumChildren(NodeId node) const { return children_.size(node); }
  NodeId FirstChild(NodeId node) const { return children_.Front(node); }
  NodeId NextSibling(NodeId node) const { return children_.Next(node); }
  // Walks a subtree, children before their parent: begin with FirstLeaf(top). The node after `id`
  // below `top`; kNoNode after `top` itself. Read it before you remove `id`.
  NodeId FirstLeaf(NodeId top) const;
  NodeId NextInPostOrder(NodeId id, NodeId top) const;

  // --- Changing. The Add functions require that the tree is not full.
  // `account` is that of all nodes below.
  NodeId AddRoot(RootKey key, AccountId account);
  // Requires that `parent` has no child that spells `tokens`.
  NodeId AddChild(NodeId parent, std::span<const int32_t> tokens);
  // `filled` tokens of a block, at least 1 and less than all.
  NodeId AddTail(NodeId parent, int32_t filled);
  // Clears the node's record. Requires that the node has no children.
  void Remove(NodeId node);

  // Aborts when an index or a list disagrees with the nodes. O(nodes).
  void CheckInvariants() const;

 private:
  NodeId Take(NodeId parent);
  void CheckNode(NodeId id) const;

  const int32_t block_size_;
  NodeRecords& nodes_;
  std::vector<NodeId> free_;
  std::unordered_map<RootKey, NodeId> roots_;
  ChildIndex index_;  // of nodes for whole blocks
  IdLists children_;  // of nodes, by parent
};

}  // namespace quire
