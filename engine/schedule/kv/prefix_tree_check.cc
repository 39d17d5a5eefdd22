// PrefixTree::CheckInvariants: everything that is counted or filed as work goes on, once more from
// what each node is.
#include <vector>

#include "engine/schedule/kv/prefix_tree.h"
#include "kernels/check.h"

namespace quire {

void PrefixTree::CheckInvariants() const {
  pool_.CheckIntegrity();
  size_t num_roots = 0;
  size_t num_unused = 0;
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    if (nodes_[id].depth < 0) {
      ++num_unused;
      continue;
    }
    num_roots += IsRoot(nodes_[id]);
    CheckPlace(id);
    CheckCounts(id);
    CheckKv(id);
    CheckLists(id);
  }
  CHECK_EQ(num_roots, roots_.size());
  CHECK_EQ(num_unused, free_nodes_.size());
  for (const NodeId id : free_nodes_) CHECK_EQ(nodes_[id].depth, -1);
  for (int32_t list = 0; list < kNumEvictable; ++list) CheckOrder(evictable_, list);
  CheckOrder(spare_pages_, 0);
  CheckTotals();
}

// Where it stands in the tree, and that it is found there.
void PrefixTree::CheckPlace(NodeId id) const {
  const Node& node = nodes_[id];
  if (IsRoot(node)) {
    CHECK(node.parent == kNoNode && !children_.Contains(id) && !index_.Contains(id));
    CHECK_EQ(roots_.at(node.tenant), id);
    return;
  }
  CHECK_EQ(children_.ListOf(id), node.parent);
  CHECK_EQ(node.depth, nodes_[node.parent].depth + 1);
  CHECK(!IsTail(node.parent));
  if (IsTail(id)) {
    CHECK(node.filled < block_size_ && children_.size(id) == 0 && !index_.Contains(id));
  } else {
    CHECK_EQ(index_.Find(node.parent, index_.TokensOf(id)), id);
  }
}

void PrefixTree::CheckCounts(NodeId id) const {
  const Node& node = nodes_[id];
  int32_t held = 0;
  int32_t kept = 0;
  int32_t paged = 0;
  int32_t count = 0;
  for (NodeId child = children_.Front(id); child != kNoNode; child = children_.Next(child)) {
    ++count;
    held += nodes_[child].holds > 0;
    kept += nodes_[child].keeps > 0;
    paged += HasPage(nodes_[child]);
  }
  CHECK_EQ(count, children_.size(id));
  CHECK_GE(node.holds, held);
  CHECK_EQ(node.keeps, keepers_.size(id) + kept);
  CHECK_EQ(node.paged_children, paged);
  CHECK(!IsRoot(node) || keepers_.size(id) == 0);
}

// KV is where holders and copies say, and each tier's is closed towards the root.
void PrefixTree::CheckKv(NodeId id) const {
  const Node& node = nodes_[id];
  const NodeKv& kv = node.kv;
  if (IsRoot(node)) {
    CHECK(kv.block == kNullBlock && kv.page == kNoPage && !Copying(node) && !node.doomed);
    return;
  }
  const Node& parent = nodes_[node.parent];
  CHECK(!kv.loading || (kv.block != kNullBlock && kv.page != kNoPage && !kv.storing));
  CHECK(!kv.storing || kv.page != kNoPage);
  CHECK(!node.doomed || Copying(node));
  CHECK(!HasPage(node) || IsRoot(parent) || HasPage(parent));
  if (kv.block != kNullBlock) {
    CHECK(pool_.state(kv.block) == (Held(id) ? BlockState::kTaken : BlockState::kCached));
  }
  if (Held(id)) return;
  CHECK(kv.on_device() || kv.on_host());
  CHECK(!Copying(node));
  const NodeKv& above = parent.kv;
  CHECK(IsRoot(parent) || Held(node.parent) || above.block != kNullBlock || above.page != kNoPage);
}

void PrefixTree::CheckLists(NodeId id) const {
  const Node& node = nodes_[id];
  const bool has_block = node.kv.block != kNullBlock;
  const bool kept = node.keeps > 0;
  int32_t list = IdLists::kNone;
  if (!Held(id) && IsRoot(node) && children_.size(id) == 0) list = kIdleRoot;
  if (!Held(id) && has_block) list = !kept ? kUnkept : node.kv.page != kNoPage ? kSaved : kUnsaved;
  CHECK_EQ(evictable_.ListOf(id), list);
  CHECK_EQ(spare_pages_.Contains(id), !Held(id) && !kept && node.kv.page != kNoPage);
}

// The front is always a node that can be lost without losing others: filed in order, and children
// that share its fate before their parent.
void PrefixTree::CheckOrder(const IdLists& lists, int32_t list) const {
  uint64_t filed = 0;
  int32_t count = 0;
  for (NodeId id = lists.Front(list); id != kNoNode; id = lists.Next(id)) {
    ++count;
    CHECK_LT(filed, nodes_[id].filed);
    filed = nodes_[id].filed;
    for (NodeId child = children_.Front(id); child != kNoNode; child = children_.Next(child)) {
      CHECK(lists.ListOf(child) != list || nodes_[child].filed < filed);
      // What has no page takes its children with it.
      CHECK(nodes_[id].kv.page != kNoPage || lists.ListOf(child) == list ||
            lists.ListOf(child) == kUnkept);
    }
  }
  CHECK_EQ(count, lists.size(list));
}

// Each block and each page has one owner or is free.
void PrefixTree::CheckTotals() const {
  std::vector<bool> block_used(pool_.total() + 1, false);
  std::vector<bool> page_used(num_pages_, false);
  int32_t num_cached = 0;
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    const NodeKv& kv = nodes_[id].kv;
    CHECK(kv.block == kNullBlock || !block_used[kv.block]);
    CHECK(kv.page == kNoPage || !page_used[kv.page]);
    if (kv.block != kNullBlock) block_used[kv.block] = true;
    if (kv.page != kNoPage) page_used[kv.page] = true;
    num_cached += kv.block != kNullBlock && !Held(id);
  }
  CHECK_EQ(num_cached, pool_.num_cached());
  for (const PageId page : free_pages_) {
    CHECK(!page_used[page]);
    page_used[page] = true;
  }
  for (PageId page = 0; page < num_pages_; ++page) CHECK(page_used[page]);
}

}  // namespace quire
