// PrefixTree: which tokens' KV exists, and where. A node stands for one block of tokens behind all
// the tokens of its ancestors; its KV lies in a block of the device, in a page of the host, or in
// both. Nodes are found by (parent, tokens), compared exactly, so that a match is a fact and not a
// likelihood. Tenants have roots of their own and share nothing.
//
// Two kinds of holders. A *hold* (a running sequence, a copy in flight, a pin) keeps the KV of a
// node and of all its ancestors where it is. A *keep* (an idle session) only says that it will be
// wanted: kept nodes are evicted last, and when one is lost its keepers move up to its parent.
// Holders count at the deepest node alone: a node is held while it or a child is, so taking and
// releasing a chain touches only what changes.
//
// Without a hold a device block is evictable. Eviction never copies: what has a page on the host
// loses its block, what has none is forgotten, leaves first. That order needs no search: releasing
// a chain files its nodes deepest first, and lists are emptied from their heads. Pages of nodes
// that nobody holds or keeps go the same way when pages are wanted.
//
// A fault (a page that turns out bad, a device that is gone) may leave a held node without KV. It
// is not found any more, Insert may fill it again, and with its last hold it is forgotten together
// with all below it.
//
// Invariants (CheckInvariants): ids of found nodes are exact prefixes; a full node is immutable;
// every node that nobody holds has KV somewhere; a node with a page has ancestors with pages; a
// parent is never forgotten before its children. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/schedule/containers/child_index.h"
#include "engine/schedule/containers/id_lists.h"
#include "engine/schedule/kv/block_pool.h"
#include "engine/values/copy_plan.h"
#include "engine/values/request.h"

namespace quire {

// Reused after the node is forgotten: only holders and keepers may store it.
using NodeId = int32_t;

inline constexpr NodeId kNoNode = -1;

// Who keeps a node, told when it was lost.
class NodeKeeper {
 public:
  virtual ~NodeKeeper() = default;
  // What `keeper` kept is forgotten; it now keeps the parent (kNoNode: the whole chain is gone, and
  // it keeps nothing). Called from within the tree: may call nothing but its const methods.
  virtual void OnLost(uint64_t keeper, NodeId parent) = 0;
};

// Where a node's KV is.
struct NodeKv {
  BlockId block = kNullBlock;  // kNullBlock: not on the device
  PageId page = kNoPage;       // kNoPage: not on the host
  bool loading = false;        // the block is being filled from the page: not to be read yet
  bool storing = false;        // the page is being filled, from the block or by an import: likewise
  bool on_device() const { return block != kNullBlock && !loading; }
  bool on_host() const { return page != kNoPage && !storing; }
};

class PrefixTree final : public BlockReclaimer {
 public:
  // Becomes the reclaimer of `pool`, which outlives this. `num_pages` of the host arena, all free
  // at first. Allocates for as many nodes as there are blocks and pages; later only for new tenants
  // and keepers, and for what faults leave behind. `hash_seed`: 0 makes all hashes equal, others
  // are taken as they are; nothing but time depends on it.
  PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages);
  PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages, uint64_t hash_seed);
  void SetKeeper(NodeKeeper* keeper) { keeper_ = keeper; }
  const BlockPool& pool() const { return pool_; }

  // --- What is there.
  // The longest chain that spells the beginning of `tokens`, whole blocks only: its deepest node,
  // or the tenant's root node (depth 0, no KV). Creates the root. Holds nothing: nothing may happen
  // to the tree before the caller holds what it found.
  NodeId Find(TenantId tenant, std::span<const int32_t> tokens);
  NodeId Parent(NodeId node) const { return nodes_[node].parent; }
  // Nodes from the root, this one included; 0: a root.
  int32_t Depth(NodeId node) const { return nodes_[node].depth; }
  int32_t NumTokens(NodeId node) const;  // of the chain: depth * block_size but for a tail
  bool IsTail(NodeId node) const { return nodes_[node].filled > 0; }
  const NodeKv& Kv(NodeId node) const { return nodes_[node].kv; }
  // Anywhere: false after a fault, or for a root.
  bool HasKv(NodeId node) const { return Kv(node).block != kNullBlock || Kv(node).page != kNoPage; }
  // Fills `chain` with the nodes from depth 1 to `node`.
  void Chain(NodeId node, std::vector<NodeId>& chain) const;

  // --- Holders.
  // Blocks that nobody holds are taken out of the pool's available ones by this.
  // Requires HoldCost(node) <= available().
  void Hold(NodeId node);
  int32_t HoldCost(NodeId node) const;
  void Release(NodeId node);
  bool Held(NodeId node) const { return nodes_[node].holds > 0; }
  // Any number of keepers a node, each with one node at most and never a root. `keeper` is the
  // keeper's own number, a small one: an array is indexed by it.
  void Keep(NodeId node, uint64_t keeper);
  void Unkeep(NodeId node, uint64_t keeper);
  // Of its children, those that are kept, be it for nodes below them.
  int32_t NumKeptChildren(NodeId node) const { return nodes_[node].keeps - keepers_.size(node); }
  int32_t NumKeepers(NodeId node) const { return keepers_.size(node); }

  // --- Growth. `parent` is held by the caller. Lowers available() never.
  struct Inserted {
    NodeId node = kNoNode;
    bool adopted = false;  // the tree took over what was given; else an equal node has KV of its
                           // own, and what was given stays the caller's
  };
  // The child of `parent` that spells `tokens` (a whole block), made if there is none. It comes
  // held for the caller. `block` is adopted unless an equal node's block is held by others.
  Inserted Insert(NodeId parent, std::span<const int32_t> tokens, BlockId block);
  // A partly filled last block: never found by Find, no children, takes over `block`. Comes held.
  NodeId InsertTail(NodeId parent, int32_t filled, BlockId block);
  // Gives the block of a tail that the caller holds to the caller, and forgets the tail with its
  // page: that hold ends, and who keeps the tail keeps the parent from now on (OnLost). kNullBlock,
  // and nothing done, if others hold it too (a store in flight). Requires on_device().
  BlockId TakeTail(NodeId tail);

  // --- Tiers. The caller holds the node from Begin to End. Pages are taken by Begin.
  // Free, or of nodes that nobody holds or keeps: there for the taking.
  int32_t num_free_pages() const;
  int32_t num_pages() const { return num_pages_; }
  // Requires on_device() and no page. kNoPage, and nothing done, if no page is free, or the parent
  // (unless a root) has none.
  PageId BeginStore(NodeId node);
  // Not ok: the node's page is free again, and so are those of all descendants; one that a copy in
  // flight still uses becomes free with that copy's own End, whether ok or not.
  void EndStore(NodeId node, bool ok);
  // Requires on_host(), no block. Takes `block` over from the caller.
  void BeginLoad(NodeId node, BlockId block);
  // Not ok: the block is free again. The page stays unless `page_bad`; then it is dropped with
  // those of all descendants, as above.
  void EndLoad(NodeId node, bool ok, bool page_bad);
  // An import: a page for the child of `parent` that spells `tokens` (for a tail: as many as are
  // filled), made if there is none. It comes held. Adopted: the caller fills the page and calls
  // EndStore; else there is one already. kNoNode, and nothing done, if no page is free, the parent
  // (unless a root) has none, or an equal node cannot be held because no block is available.
  Inserted InsertOnHost(NodeId parent, std::span<const int32_t> tokens, bool tail);
  // Drops the block of a node that nobody holds and that is on the host; false if it may not be.
  bool DropBlock(NodeId node);
  // Drops the page of a node that nobody holds and whose children have none; a node that has no
  // block either is forgotten, and all below it, which is of no use without. False if it may not
  // be.
  bool DropPage(NodeId node);

  // --- Pressure and faults.
  // BlockReclaimer: the block least worth keeping. Order: what nobody keeps and what is on the host
  // as well, the longer unused first; then what is kept and has no copy. Requires an evictable one.
  BlockId Reclaim() override;
  // Evictable blocks that cost nothing to lose: nobody keeps them, or the host has them.
  int32_t num_lossless() const;
  int64_t num_evicted() const { return num_evicted_; }      // blocks given away by Reclaim
  int64_t num_kept_lost() const { return num_kept_lost_; }  // of them, kept ones without a page
  // The kept node without a page that Reclaim would lose first among such; kNoNode if none.
  NodeId OldestUnsaved() const { return evictable_.Front(kUnsaved); }
  // The device is gone with all its blocks, which are free now: nodes on the host stay, others that
  // nobody holds are forgotten. Requires that the copies in flight have been ended.
  void ForgetDevice();

  void CheckInvariants() const;

 private:
  // Lists of nodes that nobody holds: those with a block, and roots without children.
  enum Evictable : int32_t { kUnkept, kSaved, kUnsaved, kIdleRoot, kNumEvictable };

  struct Node {
    NodeKv kv;
    bool doomed = false;  // the page is not the node's any more, and free when a copy has ended
    NodeId parent = kNoNode;
    int32_t depth = -1;          // -1: not in use
    int32_t filled = 0;          // of a tail: its tokens
    int32_t holds = 0;           // holders, and children that are held
    int32_t keeps = 0;           // keepers, and children that are kept
    int32_t paged_children = 0;  // that have a page and are not doomed
    uint64_t filed = 0;          // when it was filed last
    TenantId tenant = 0;         // of a root
  };

  bool IsRoot(const Node& node) const { return node.depth == 0; }
  bool HasPage(const Node& node) const { return node.kv.page != kNoPage && !node.doomed; }
  bool Copying(const Node& node) const { return node.kv.loading || node.kv.storing; }
  int32_t ListFor(NodeId id) const;
  void File(NodeId id);
  void Unfile(NodeId id);
  NodeId FindRoot(TenantId tenant);
  NodeId NewNode(NodeId parent);
  NodeId NewChild(NodeId parent, std::span<const int32_t> tokens);
  NodeId NewTail(NodeId parent, int32_t filled);
  void Grow(int32_t count);
  void Forget(NodeId id);
  void ForgetSubtree(NodeId top);
  void MoveKeepersUp(NodeId id);
  bool PageToHave(NodeId parent) const;
  void TakePage(NodeId id);
  void GiveBackPage(NodeId id);
  void LosePage(NodeId id);
  void LosePages(NodeId top);
  NodeId FirstLeaf(NodeId id) const;
  NodeId NextInPostOrder(NodeId id, NodeId top) const;
  void CheckPlace(NodeId id) const;
  void CheckCounts(NodeId id) const;
  void CheckKv(NodeId id) const;
  void CheckLists(NodeId id) const;
  void CheckOrder(const IdLists& lists, int32_t list) const;
  void CheckTotals() const;

  BlockPool& pool_;
  const int32_t block_size_;
  const int32_t num_pages_;
  NodeKeeper* keeper_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<NodeId> free_nodes_;
  std::vector<PageId> free_pages_;
  std::unordered_map<TenantId, NodeId> roots_;
  ChildIndex index_;     // of whole blocks
  IdLists children_;     // of nodes, by parent
  IdLists keepers_;      // of keepers, by node
  IdLists evictable_;    // of nodes, by Evictable; longest unused first
  IdLists spare_pages_;  // one list: nodes with a page that nobody holds or keeps
  uint64_t clock_ = 0;   // counts filings
  int64_t num_evicted_ = 0;
  int64_t num_kept_lost_ = 0;
};

}  // namespace quire
