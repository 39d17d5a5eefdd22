// PrefixTree: which tokens have KV, and where it is. A node stands for one block of tokens after
// all the tokens of its ancestors; its KV is in a block of the device, in a page of host memory, or
// in both. Start here; KvNodes puts the parts together: NodeTree (shape), NodeKeepers, NodePages,
// HostShares, EvictionOrder. host() leads to HostTier, the copies; events() to KvEventSource, which
// tells of changes.
//
// Two ways to need a node. A *hold* (a running sequence, a copy in flight, a pin) keeps the KV of a
// node and of all its ancestors in place. A *keep* (an idle session) only says that the KV will be
// wanted: kept nodes are evicted last, and when one is lost its keepers move up to its parent. Both
// name the deepest node alone and cost only as much as changes.
//
// A block without a hold is evictable, at any time and without a copy: a node with a page loses its
// block, a node without a page is forgotten, children before their parent. The longest unused goes
// first. Pages of nodes that are neither held nor kept are reused in the same order; a tenant at
// its bound (HostShares) reuses its own.
//
// A fault (a corrupt page, a lost device) may leave a held node without KV. Find does not find it
// then, Insert may fill it again, and its last Release forgets it with all nodes below it.
//
// Invariants (CheckInvariants): a found node is an exact prefix; a full node never changes; every
// node without holds has KV somewhere; a node with a page has ancestors with pages; a parent is
// never forgotten before its children. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/kv/block_pool.h"
#include "engine/schedule/kv/host_tier.h"
#include "engine/schedule/kv/kv_event_source.h"
#include "engine/schedule/kv/kv_nodes.h"
#include "engine/values/request.h"

namespace quire {

class TenantAccounts;

class PrefixTree final : public BlockReclaimer {
 public:
  using Inserted = InsertedNode;

  // Becomes the reclaimer of `pool`, which outlives this. Has `num_pages` of host memory, all free.
  // Allocates for a node per block and page; later only for new tenants and keepers, and for nodes
  // that remain after faults.
  PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages);
  // The same with a chosen seed of the hash, on which only time depends; 0: all hashes are equal.
  PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages, uint64_t hash_seed);
  // Outlives the last change; null: nothing is reported.
  void SetKeeper(NodeKeeper* keeper) { nodes_.keepers().SetKeeper(keeper); }
  // The tenants' bounds of host memory, and their counts; before the first Find. It outlives this;
  // null: no tenant has a bound.
  void SetAccounts(TenantAccounts* accounts) { nodes_.shares().SetAccounts(accounts); }

  const BlockPool& pool() const { return pool_; }
  // For readers of all nodes.
  const KvNodes& nodes() const { return nodes_; }
  HostTier& host() { return host_; }
  const HostTier& host() const { return host_; }
  KvEventSource& events() { return events_; }
  // The nodes that may be evicted, and the number evicted so far.
  const EvictionOrder& evictions() const { return nodes_.order(); }

  // --- Looking.
  // The longest chain with KV that spells the beginning of `tokens`, whole blocks only: its deepest
  // node, or the tenant's root (depth 0, no KV), which is made if needed. Holds nothing: hold the
  // node before any other change to the tree.
  NodeId Find(TenantId tenant, std::span<const int32_t> tokens);
  NodeId Parent(NodeId node) const { return nodes_.tree().Parent(node); }
  // The number of nodes from the root to this one, without the root; 0: this is a root.
  int32_t Depth(NodeId node) const { return nodes_.tree().Depth(node); }
  int32_t block_size() const { return block_size_; }
  // Tokens from the root to the end of the node: depth * block_size, except for a tail.
  int32_t NumTokens(NodeId node) const { return nodes_.tree().NumTokens(node); }
  bool IsTail(NodeId node) const { return nodes_.tree().IsTail(node); }
  AccountId AccountOf(NodeId node) const { return nodes_.tree().AccountOf(node); }
  const NodeKv& Kv(NodeId node) const { return nodes_.Kv(node); }
  // On the device or on the host; false for a root, or after a fault.
  bool HasKv(NodeId node) const { return Kv(node).anywhere(); }
  // Fills `chain` with the nodes from depth 1 to `node`.
  void Chain(NodeId node, std::vector<NodeId>& chain) const { nodes_.tree().Chain(node, chain); }

  // --- Holders.
  // Takes the chain's cached blocks out of the pool's available ones. Requires
  // HoldCost(node) <= pool().available().
  void Hold(NodeId node) { nodes_.Hold(node); }
  int32_t HoldCost(NodeId node) const { return nodes_.HoldCost(node); }
  void Release(NodeId node) { nodes_.Release(node); }
  bool Held(NodeId node) const { return nodes_.Held(node); }

  // --- Keepers. A node may have any number; a keeper has one node at most, never a root. `keeper`
  // is a small number of the caller's choice: an array is indexed by it.
  void Keep(NodeId node, uint64_t keeper) { nodes_.Keep(node, keeper); }
  void Unkeep(NodeId node, uint64_t keeper) { nodes_.Unkeep(node, keeper); }
  int32_t NumKeepers(NodeId node) const { return nodes_.keepers().NumKeepers(node); }
  // The children that are kept, for themselves or for nodes below them.
  int32_t NumKeptChildren(NodeId node) const { return nodes_.keepers().NumKeptChildren(node); }

  // --- Growth. The caller holds `parent`. Never reduces pool().available().
  // The child of `parent` that spells `tokens` (a whole block), made if there is none. It comes
  // held. The tree adopts `block`, unless an equal node is held with a block of its own.
  Inserted Insert(NodeId parent, std::span<const int32_t> tokens, BlockId block);
  // A new tail: a partly filled last block, without children and never found by Find. Adopts
  // `block` and comes held.
  NodeId InsertTail(NodeId parent, int32_t filled, BlockId block);
  // Ends the caller's hold of a tail, forgets the tail and its page, and returns its block, which
  // becomes the caller's. The tail's keepers keep the parent from now on (OnLost). kNullBlock, and
  // nothing done, if there is another hold or a store in flight. Requires on_device().
  BlockId TakeTail(NodeId tail) { return nodes_.TakeTail(tail); }

  // --- Pressure and faults.
  // Called by the pool: gives up the block least worth keeping, as EvictionOrder::TakeVictim says.
  BlockId Reclaim() override { return nodes_.Evict(); }
  // The device is lost with all its blocks, which become free. Nodes with a page stay; of the
  // others those without holds are forgotten. Requires that no store or load is in flight.
  void ForgetDevice() { nodes_.ForgetDevice(); }
  // Forgets the nodes that are neither held nor, unless the flush says so, kept. O(nodes).
  FlushedCache Flush(const CacheFlush& flush);

  // Recounts everything; aborts on a difference. O(nodes + blocks + pages).
  void CheckInvariants() const { nodes_.CheckInvariants(); }

 private:
  BlockPool& pool_;
  const int32_t block_size_;
  KvNodes nodes_;
  HostTier host_;
  KvEventSource events_;
};

}  // namespace quire
