// NodePages: the pages of host memory, each free or owned by one node, or not ready yet: the ranks
// make them ready from the first to the last. A page that a copy still uses can only be doomed: its
// node counts as having none, and the page becomes free when the copy has ended. A page that is
// read from outside the scheduler (a snapshot) may leave its node, but is given to no other node
// until the reading has ended. Tells HostShares whose each page is. One thread. Allocates at
// construction alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/kv/node_record.h"

namespace quire {

class HostShares;

class NodePages {
 public:
  // Both outlive this. All pages are ready and free.
  NodePages(NodeRecords& records, HostShares& shares, int32_t num_pages);

  int32_t num_pages() const { return num_pages_; }
  int32_t num_ready() const { return num_ready_; }
  // The first `count` pages are ready. Requires that they exist, and that all pages are free if
  // there were more before.
  void SetReady(int32_t count);
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  // The node has a page, and keeps it when a copy in flight ends.
  bool Has(NodeId node) const { return nodes_[node].kv.page != kNoPage && !nodes_[node].doomed; }
  // One of its children has.
  bool HasBelow(NodeId node) const { return nodes_[node].paged_children > 0; }

  // Gives a free page to a node that has none and is no root. Requires num_free() > 0.
  void Take(NodeId node);
  // The node's page becomes free, doomed or not.
  void GiveBack(NodeId node);
  // The node's page is to become free when a copy ends. Requires Has(node).
  void Doom(NodeId node);
  bool Doomed(NodeId node) const { return nodes_[node].doomed; }

  // --- Readers from outside. Reads are counted.
  void BeginRead(PageId page) { ++readers_[page]; }
  void EndRead(PageId page);
  bool Reading(PageId page) const { return readers_[page] > 0; }

  // Aborts unless each page is free, read or has one owner, and counts are right. O(nodes + pages).
  void CheckInvariants() const;

 private:
  void Free(PageId page);

  const int32_t num_pages_;
  NodeRecords& nodes_;
  HostShares& shares_;
  int32_t num_ready_ = 0;
  std::vector<PageId> free_;
  std::vector<int32_t> readers_;  // by page
  std::vector<bool> left_;        // by page: read, and its node has given it back
};

}  // namespace quire
