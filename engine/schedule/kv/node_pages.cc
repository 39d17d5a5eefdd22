// A stack of free pages, and a count of children with a page in each node.
#include "engine/schedule/kv/node_pages.h"

#include <utility>

#include "engine/schedule/kv/host_shares.h"
#include "kernels/check.h"

namespace quire {

NodePages::NodePages(NodeRecords& records, HostShares& shares, int32_t num_pages)
    : num_pages_(num_pages),
      nodes_(records),
      shares_(shares),
      readers_(num_pages),
      left_(num_pages) {
  free_.reserve(num_pages);
  SetReady(num_pages);
}

// The lowest of the new ones is taken first.
void NodePages::SetReady(int32_t count) {
  CHECK(0 <= count && count <= num_pages_);
  if (count < num_ready_) {
    CHECK_EQ(num_free(), num_ready_);
    free_.clear();
    num_ready_ = 0;
  }
  for (PageId page = count - 1; page >= num_ready_; --page) free_.push_back(page);
  num_ready_ = count;
}

void NodePages::Take(NodeId id) {
  CHECK(nodes_[id].kv.page == kNoPage && !free_.empty());
  nodes_[id].kv.page = free_.back();
  free_.pop_back();
  shares_.Add(nodes_[id].account, nodes_[id].kv.page);
  ++nodes_[nodes_[id].parent].paged_children;
}

void NodePages::GiveBack(NodeId id) {
  NodeRecord& node = nodes_[id];
  const PageId page = std::exchange(node.kv.page, kNoPage);
  if (Reading(page)) {
    left_[page] = true;
  } else {
    Free(page);
  }
  if (!std::exchange(node.doomed, false)) --nodes_[node.parent].paged_children;
}

void NodePages::EndRead(PageId page) {
  CHECK_GT(readers_[page], 0);
  if (--readers_[page] > 0 || !left_[page]) return;
  left_[page] = false;
  Free(page);
}

void NodePages::Free(PageId page) {
  shares_.Remove(page);
  free_.push_back(page);
}

void NodePages::Doom(NodeId id) {
  CHECK(Has(id));
  nodes_[id].doomed = true;
  --nodes_[nodes_[id].parent].paged_children;
}

void NodePages::CheckInvariants() const {
  std::vector<bool> used(num_pages_, false);
  std::vector<int32_t> paged_children(nodes_.size(), 0);
  const auto take = [&used](PageId page) {
    CHECK(!used[page]);
    used[page] = true;
  };
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    if (nodes_[id].kv.page != kNoPage) {
      take(nodes_[id].kv.page);
      CHECK_EQ(shares_.OwnerOf(nodes_[id].kv.page), nodes_[id].account);
    }
    if (Has(id)) ++paged_children[nodes_[id].parent];
  }
  for (const PageId page : free_) {
    take(page);
    CHECK_EQ(shares_.OwnerOf(page), kNoAccount);
  }
  shares_.CheckInvariants();
  for (PageId page = 0; page < num_pages_; ++page) {
    CHECK(!left_[page] || (Reading(page) && !used[page]));
    CHECK_EQ(used[page] || left_[page], page < num_ready_);
  }
  for (size_t id = 0; id < nodes_.size(); ++id) {
    CHECK_EQ(nodes_[id].paged_children, paged_children[id]);
  }
}

}  // namespace quire
