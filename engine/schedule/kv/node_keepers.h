// NodeKeepers: the keeps of the prefix tree's nodes. A keep says that an idle session will want a
// node and all its ancestors again; it does not hold their KV in place. It is counted at the
// deepest node alone: a node is kept while it or one of its children is, so that adding and
// removing a keep touches only the nodes that change.
//
// Keepers are numbered by their owner, the NodeKeeper. One thread. Allocates only for new keepers.
#pragma once

#include <cstdint>

#include "engine/schedule/containers/id_lists.h"
#include "engine/schedule/kv/node_record.h"

namespace quire {

class NodeTree;

// Receives what happens to kept nodes. The tree calls it in the middle of a change, so it may call
// only the tree's const methods, and must return after a bounded amount of work.
class NodeKeeper {
 public:
  virtual ~NodeKeeper() = default;
  // The node that `keeper` kept is forgotten. It keeps the parent from now on; kNoNode: the whole
  // chain is gone, and it keeps nothing.
  virtual void OnLost(uint64_t keeper, NodeId parent) = 0;
  // The KV of the kept `node` has left the device or the host (evicted, dropped, lost by a fault);
  // the node stays. This concerns the keepers of the node and of all nodes below it.
  virtual void OnTierLost(NodeId node) = 0;
};

class NodeKeepers {
 public:
  // Both outlive this. Nodes of the tree are known from Grow on.
  NodeKeepers(NodeRecords& records, const NodeTree& tree)
      : nodes_(records), tree_(tree), keepers_(0, 0) {}
  // Outlives the last change; null: nothing is reported.
  void SetKeeper(NodeKeeper* keeper) { keeper_ = keeper; }
  void Grow(int32_t num_nodes);

  bool Kept(NodeId node) const { return nodes_[node].keeps > 0; }
  int32_t NumKeepers(NodeId node) const { return keepers_.size(node); }
  // The children that are kept, for themselves or for nodes below them.
  int32_t NumKeptChildren(NodeId node) const { return nodes_[node].keeps - keepers_.size(node); }

  // `keeper` keeps `node`, which is not a root. Requires that it keeps nothing yet.
  void Add(NodeId node, uint64_t keeper);
  // `keeper` keeps `node` no longer. Returns the deepest ancestor that is still kept (kNoNode: not
  // even the root): the nodes in front of it, from `node` on, have just stopped being kept.
  NodeId Remove(NodeId node, uint64_t keeper);
  // The keepers of `node`, which is about to be removed, keep its parent, and are told.
  void MoveUp(NodeId node);
  // Reports that a tier of `node` is gone, if the node is kept.
  void ReportTierLost(NodeId node) const {
    if (keeper_ != nullptr && Kept(node)) keeper_->OnTierLost(node);
  }

  // Aborts when a count is not what the tree and the keepers say. O(nodes).
  void CheckInvariants() const;

 private:
  NodeRecords& nodes_;
  const NodeTree& tree_;
  NodeKeeper* keeper_ = nullptr;
  IdLists keepers_;  // of keepers, by node
};

}  // namespace quire
