// KvNodes: where the KV of each node of the prefix tree is, and which nodes may lose it. PrefixTree
// (lookup and growth) and HostTier (copies) are built on it; other code uses those two.
//
// A node is held while it has a holder or a held child; that counts at the deepest node alone, so
// that holding and releasing a chain touches only the nodes that change. A held node's block and
// page stay where they are. The block of a node without holds is cached in the pool and may be
// evicted at any time; the node itself is forgotten when its last KV is gone, and all nodes below
// it with it. One thread. Allocates only when the nodes run out.
#pragma once

#include <cstdint>
#include <span>

#include "engine/schedule/kv/block_pool.h"
#include "engine/schedule/kv/eviction_order.h"
#include "engine/schedule/kv/host_shares.h"
#include "engine/schedule/kv/node_changes.h"
#include "engine/schedule/kv/node_keepers.h"
#include "engine/schedule/kv/node_pages.h"
#include "engine/schedule/kv/node_record.h"
#include "engine/schedule/kv/node_tree.h"

namespace quire {

class KvNodes {
 public:
  // `pool` outlives this. Has room for a node per block and page, and some tenants.
  KvNodes(BlockPool& pool, int32_t block_size, int32_t num_pages, uint64_t hash_seed);

  // --- Looking.
  const NodeTree& tree() const { return tree_; }
  const EvictionOrder& order() const { return order_; }
  const NodePages& pages() const { return pages_; }
  HostShares& shares() { return shares_; }
  NodeKeepers& keepers() { return keepers_; }
  NodeChanges& changes() { return changes_; }
  const NodeKeepers& keepers() const { return keepers_; }
  const NodeKv& Kv(NodeId node) const { return nodes_[node].kv; }
  bool Held(NodeId node) const { return nodes_[node].holds > 0; }
  // Blocks by which Hold(node) would reduce the available blocks of the pool.
  int32_t HoldCost(NodeId node) const;

  // --- Holders and keepers, as PrefixTree says.
  void Hold(NodeId node);
  void Release(NodeId node);
  void Keep(NodeId node, uint64_t keeper);
  void Unkeep(NodeId node, uint64_t keeper);

  // --- Nodes. New ones have no KV and no holder; hold them before anything else happens.
  NodeId FindOrAddRoot(RootKey key);
  NodeId AddChild(NodeId parent, std::span<const int32_t> tokens);
  NodeId AddTail(NodeId parent, int32_t filled);
  // Forgets a node with all nodes below it, children first, and frees their blocks and pages.
  // Requires that none of them is held.
  void ForgetSubtree(NodeId top);
  // Forgets a tail on the device that has one hold and no store in flight, ends the hold, and
  // returns the tail's block; else kNullBlock, and nothing done.
  BlockId TakeTail(NodeId tail);

  // --- Blocks.
  // Gives a held node without a block one, which the pool counts as taken.
  void SetBlock(NodeId node, BlockId block, bool loading);
  // Frees the block of a node. The caller looks whether the node still has KV.
  void FreeBlock(NodeId node);
  // Takes the block least worth keeping from its node; the pool still counts it as cached. Requires
  // an evictable node.
  BlockId Evict();
  // All blocks of the device are lost: frees them, and forgets the nodes without page and holder.
  // Requires that no store or load is in flight; imports may be.
  void ForgetDevice();

  // --- Pages.
  void SetReadyPages(int32_t count) { pages_.SetReady(count); }
  // Gives a held node a page, which is `storing` from now on. It comes from the longest unused
  // spare node if none is free, and from those of the same tenant if that has as many as it may
  // have. Requires HostTier::num_free_pages(node) > 0, and that the parent is a root or has a page.
  void TakePage(NodeId node);
  // The bytes of the page of a node stay as they are until EndRead, with the node or without it. An
  // unused node's page is not spare meanwhile. EndRead takes the node and the page that BeginRead
  // gave; call both from the deepest node of a chain to the root.
  PageId BeginRead(NodeId node);
  void EndRead(NodeId node, PageId page);
  // A copy has ended: neither loading nor storing. False: the node has lost its page meanwhile.
  bool EndCopy(NodeId node);
  // Frees a node's page, at once or when the copy that uses it has ended. Forgets the node, and all
  // nodes below it, if no holder needs it and no KV is left. Requires pages().Has(node).
  void LosePage(NodeId node);

  // Recounts everything; aborts on a difference. O(nodes + blocks + pages).
  void CheckInvariants() const;

 private:
  void File(NodeId node);
  void FileAgain(NodeId node);
  void MakeRoomForNode();
  void Grow(int32_t count);
  void Forget(NodeId node);
  void CheckCounts(NodeId id) const;
  void CheckKv(NodeId id) const;
  void CheckLists(NodeId id) const;
  void CheckTotals() const;

  BlockPool& pool_;
  NodeRecords nodes_;
  NodeTree tree_;
  NodeKeepers keepers_;
  HostShares shares_;
  NodePages pages_;
  EvictionOrder order_;
  NodeChanges changes_;
};

}  // namespace quire
