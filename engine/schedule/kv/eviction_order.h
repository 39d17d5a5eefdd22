// EvictionOrder: the order in which nodes of the prefix tree lose blocks and pages. It lists the
// nodes that no holder needs; the longest unused comes first, and of nodes released together the
// deepest, so that a list emptied from its head takes children before their parents. Nothing here
// searches or allocates, Grow aside. One thread.
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
      : nodes_(records), evictable_(kNumLists, 0), spare_pages_(1, 0) {}
  void Grow(int32_t num_nodes);

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
  // Evictable blocks whose loss loses nothing that is wanted: unkept, or saved on the host.
  int32_t num_lossless() const { return evictable_.size(kUnkept) + evictable_.size(kSaved); }
  int64_t num_evicted() const { return num_evicted_; }      // victims so far
  int64_t num_kept_lost() const { return num_kept_lost_; }  // kept, unsaved victims

  // Aborts when a list is out of order. O(filed nodes and their children).
  void CheckInvariants(const NodeTree& tree) const;

 private:
  void CheckList(const NodeTree& tree, const IdLists& lists, int32_t list) const;

  NodeRecords& nodes_;
  IdLists evictable_;    // of nodes, by List; longest unused first
  IdLists spare_pages_;  // one list: nodes with a page that is neither held nor kept
  uint64_t clock_ = 0;   // counts filings
  int64_t num_evicted_ = 0;
  int64_t num_kept_lost_ = 0;
};

}  // namespace quire
