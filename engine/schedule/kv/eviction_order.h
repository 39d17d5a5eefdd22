// EvictionOrder: the order in which nodes of the prefix tree lose blocks and pages. It lists the
// nodes that no holder needs; the longest unused comes first, and of nodes released together the
// deepest, so that a list emptied from its head takes children before their parents. Two of the
// lists exist once more for each tenant, in the same order. Nothing here searches or allocates,
// Grow aside. One thread.
#pragma once

#include <cstdint>

#include "engine/schedule/containers/id_lists.h"
#include "engine/schedule/kv/node_record.h"

namespace quire {

class NodeTree;

class EvictionOrder {
 public:
  // Why a node may go. All but idle roots have a block on the device.
  enum List : int32_t {
    kUnkept,    // no session keeps it
    kSaved,     // kept, with a page on the host: only its block is lost
    kUnsaved,   // kept, without a page: its KV is lost
    kIdleRoot,  // the root of a tenant without nodes
    kNumLists
  };
  static constexpr int32_t kNoList = IdLists::kNone;

  // `records` outlives this.
  explicit EvictionOrder(NodeRecords& records)
      : nodes_(records), evictable_(kNumLists, 0), spare_pages_(1, 0), own_(0, 0) {}
  void Grow(int32_t num_nodes);
  // Accounts below `count` may have nodes from now on.
  void GrowAccounts(int32_t count);

  // Files a node after all nodes filed before: in `list` unless that is kNoList, and with
  // `spare_page` also among the nodes whose page may be reused. Requires that it is not filed.
  void File(NodeId node, int32_t list, bool spare_page);
  void Unfile(NodeId node);
  // Its block is gone, or its page: takes it out of the lists for that, if it is there.
  void UnfileBlock(NodeId node);
  void UnfilePage(NodeId node);
  // Takes out the node whose block is least worth keeping and counts it: unkept and saved nodes
  // first, the longer unused of the two; then unsaved ones. kNoNode if there is none.
  NodeId TakeVictim();

  NodeId OldestUnsaved() const { return evictable_.Front(kUnsaved); }    // kNoNode: none
  NodeId OldestIdleRoot() const { return evictable_.Front(kIdleRoot); }  // kNoNode: none
  NodeId OldestSparePage() const { return spare_pages_.Front(0); }       // kNoNode: none
  int32_t ListOf(NodeId node) const { return evictable_.ListOf(node); }  // kNoList: none
  bool HasSparePage(NodeId node) const { return spare_pages_.Contains(node); }
  int32_t num_spare_pages() const { return spare_pages_.size(0); }
  int32_t num_idle_roots() const { return evictable_.size(kIdleRoot); }

  // --- The same of one tenant. Accounts are 0 to num_accounts() - 1, in use or not.
  int32_t num_accounts() const { return own_.num_lists() / 2; }
  NodeId OldestUnsaved(AccountId account) const { return own_.Front(UnsavedOf(account)); }
  NodeId OldestSparePage(AccountId account) const { return own_.Front(SpareOf(account)); }
  int32_t num_spare_pages(AccountId account) const { return own_.size(SpareOf(account)); }
  // Whether `node` was filed before `other`.
  bool IsOlder(NodeId node, NodeId other) const { return nodes_[node].filed < nodes_[other].filed; }

  // Evictable blocks whose loss loses nothing that is wanted: unkept, or saved on the host.
  int32_t num_lossless() const { return evictable_.size(kUnkept) + evictable_.size(kSaved); }
  int64_t num_evicted() const { return num_evicted_; }      // victims so far
  int64_t num_kept_lost() const { return num_kept_lost_; }  // kept, unsaved victims

  // Aborts when a list is out of order. O(filed nodes and their children).
  void CheckInvariants(const NodeTree& tree) const;

 private:
  static int32_t UnsavedOf(AccountId account) { return 2 * account; }
  static int32_t SpareOf(AccountId account) { return 2 * account + 1; }
  void CheckList(const NodeTree& tree, const IdLists& lists, int32_t list) const;
  void CheckOwn() const;

  NodeRecords& nodes_;
  IdLists evictable_;    // of nodes, by List; longest unused first
  IdLists spare_pages_;  // one list: nodes with a page that is neither held nor kept
  // Two lists for each account: its unsaved nodes and its spare pages. No node is in both, because
  // a spare page is not kept.
  IdLists own_;
  uint64_t clock_ = 0;  // counts filings
  int64_t num_evicted_ = 0;
  int64_t num_kept_lost_ = 0;
};

}  // namespace quire
