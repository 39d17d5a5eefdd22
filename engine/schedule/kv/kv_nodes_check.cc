// KvNodes::CheckInvariants: computes every count and every list again from what each node is.
#include <vector>

#include "engine/schedule/kv/kv_nodes.h"
#include "kernels/check.h"

namespace quire {

void KvNodes::CheckInvariants() const {
  pool_.CheckIntegrity();
  tree_.CheckInvariants();
  keepers_.CheckInvariants();
  order_.CheckInvariants(tree_);
  pages_.CheckInvariants();
  for (NodeId id = 0; id < tree_.num_nodes(); ++id) {
    if (!tree_.InUse(id)) continue;
    CheckCounts(id);
    CheckKv(id);
    CheckLists(id);
  }
  CheckTotals();
}

void KvNodes::CheckCounts(NodeId id) const {
  int32_t held = 0;
  for (NodeId child = tree_.FirstChild(id); child != kNoNode; child = tree_.NextSibling(child)) {
    held += Held(child);
  }
  CHECK_GE(nodes_[id].holds, held);
}

// Holders and copies find KV where they expect it, and a node's ancestors have KV where it has.
void KvNodes::CheckKv(NodeId id) const {
  const NodeKv& kv = Kv(id);
  const bool doomed = pages_.Doomed(id);
  if (tree_.IsRoot(id)) {
    CHECK(!kv.anywhere() && !kv.copying() && !doomed);
    shares_.CheckRoot(tree_.Key(id), tree_.AccountOf(id));
    return;
  }
  const NodeId parent = tree_.Parent(id);
  CHECK(!kv.loading || (kv.block != kNullBlock && kv.page != kNoPage && !kv.storing));
  CHECK(!kv.storing || kv.page != kNoPage);
  CHECK(!doomed || kv.copying());
  CHECK(!pages_.Has(id) || tree_.IsRoot(parent) || pages_.Has(parent));
  if (kv.block != kNullBlock) {
    CHECK(pool_.state(kv.block) == (Held(id) ? BlockState::kTaken : BlockState::kCached));
  }
  if (Held(id)) return;
  CHECK(kv.on_device() || kv.on_host());
  CHECK(!kv.copying());
  CHECK(tree_.IsRoot(parent) || Held(parent) || Kv(parent).anywhere());
}

void KvNodes::CheckLists(NodeId id) const {
  using enum EvictionOrder::List;
  const NodeKv& kv = Kv(id);
  const bool kept = keepers_.Kept(id);
  int32_t list = EvictionOrder::kNoList;
  if (!Held(id) && tree_.IsRoot(id) && tree_.NumChildren(id) == 0) list = kIdleRoot;
  if (!Held(id) && kv.block != kNullBlock) {
    list = !kept ? kUnkept : kv.page != kNoPage ? kSaved : kUnsaved;
  }
  CHECK_EQ(order_.ListOf(id), list);
  const bool reusable = kv.page != kNoPage && !pages_.Reading(kv.page);
  CHECK_EQ(order_.HasSparePage(id), !Held(id) && !kept && reusable);
  if (list == EvictionOrder::kNoList || kv.page != kNoPage) return;
  // A node without a page takes its children with it when it is evicted: they go first.
  for (NodeId child = tree_.FirstChild(id); child != kNoNode; child = tree_.NextSibling(child)) {
    CHECK(order_.ListOf(child) == list || order_.ListOf(child) == kUnkept);
  }
}

// Each block has one owner at most, and the pool counts those of nodes without holds as cached.
void KvNodes::CheckTotals() const {
  std::vector<bool> used(pool_.total() + 1, false);
  int32_t num_cached = 0;
  for (NodeId id = 0; id < tree_.num_nodes(); ++id) {
    const BlockId block = Kv(id).block;
    if (block == kNullBlock) continue;
    CHECK(!used[block]);
    used[block] = true;
    num_cached += !Held(id);
  }
  CHECK_EQ(num_cached, pool_.num_cached());
}

}  // namespace quire
