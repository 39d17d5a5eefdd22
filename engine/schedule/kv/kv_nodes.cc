// Counts that spread towards the root, and what follows when the last one goes.
#include "engine/schedule/kv/kv_nodes.h"

#include <utility>

#include "kernels/check.h"

namespace quire {
namespace {

// Nodes for tenants. More tenants fit while some KV is in both tiers; then the tree allocates. At
// most as many roots wait for the next nodes of their tenants, each with an account.
constexpr int32_t kSpareRoots = 64;

}  // namespace

KvNodes::KvNodes(BlockPool& pool, int32_t block_size, int32_t num_pages, uint64_t hash_seed)
    : pool_(pool),
      tree_(nodes_, block_size, hash_seed),
      keepers_(nodes_, tree_),
      shares_(num_pages, block_size),
      pages_(nodes_, shares_, num_pages),
      order_(nodes_) {
  Grow(pool.total() + num_pages + kSpareRoots);
}

void KvNodes::Grow(int32_t count) {
  tree_.Grow(count);
  keepers_.Grow(count);
  order_.Grow(count);
}

// --- Holders and keepers.

int32_t KvNodes::HoldCost(NodeId id) const {
  int32_t cost = 0;
  for (; id != kNoNode && !Held(id); id = tree_.Parent(id)) cost += Kv(id).block != kNullBlock;
  return cost;
}

void KvNodes::Hold(NodeId id) {
  for (; id != kNoNode; id = tree_.Parent(id)) {
    NodeRecord& node = nodes_[id];
    if (node.holds++ > 0) return;
    order_.Unfile(id);
    if (node.kv.block != kNullBlock) pool_.Uncache(node.kv.block);
  }
}

void KvNodes::Release(NodeId id) {
  while (id != kNoNode) {
    NodeRecord& node = nodes_[id];
    CHECK_GT(node.holds, 0);
    if (--node.holds > 0) return;
    CHECK(!node.kv.copying());
    const NodeId parent = tree_.Parent(id);
    if (!tree_.IsRoot(id) && !node.kv.anywhere()) {
      ForgetSubtree(id);
    } else {
      if (node.kv.block != kNullBlock) pool_.Cache(node.kv.block);
      File(id);
    }
    id = parent;
  }
}

void KvNodes::Keep(NodeId node, uint64_t keeper) {
  keepers_.Add(node, keeper);
  // The whole chain counts as used now, not only the nodes that were not kept before: else an
  // ancestor could stand in front of its child.
  for (NodeId id = node; !tree_.IsRoot(id) && !Held(id); id = tree_.Parent(id)) FileAgain(id);
}

void KvNodes::Unkeep(NodeId node, uint64_t keeper) {
  const NodeId still_kept = keepers_.Remove(node, keeper);
  for (NodeId id = node; id != still_kept; id = tree_.Parent(id)) FileAgain(id);
}

// Files a node without holds after all nodes filed before.
void KvNodes::File(NodeId id) {
  const NodeKv& kv = Kv(id);
  const bool kept = keepers_.Kept(id);
  int32_t list = EvictionOrder::kNoList;
  if (tree_.IsRoot(id)) {
    if (tree_.NumChildren(id) == 0) list = EvictionOrder::kIdleRoot;
  } else if (kv.block != kNullBlock) {
    list = !kept            ? EvictionOrder::kUnkept
           : pages_.Has(id) ? EvictionOrder::kSaved
                            : EvictionOrder::kUnsaved;
  }
  order_.File(id, list, /*spare_page=*/!kept && pages_.Has(id) && !pages_.Reading(kv.page));
}

void KvNodes::FileAgain(NodeId id) {
  if (tree_.IsRoot(id) || Held(id)) return;
  order_.Unfile(id);
  File(id);
}

// --- Nodes.

NodeId KvNodes::FindOrAddRoot(RootKey key) {
  NodeId root = tree_.Root(key);
  if (root != kNoNode) return root;
  while (order_.num_idle_roots() >= kSpareRoots) Forget(order_.OldestIdleRoot());
  MakeRoomForNode();
  const AccountId account = shares_.Open(key);
  order_.GrowAccounts(account + 1);
  root = tree_.AddRoot(key, account);
  File(root);
  return root;
}

NodeId KvNodes::AddChild(NodeId parent, std::span<const int32_t> tokens) {
  MakeRoomForNode();
  return tree_.AddChild(parent, tokens);
}

NodeId KvNodes::AddTail(NodeId parent, int32_t filled) {
  MakeRoomForNode();
  return tree_.AddTail(parent, filled);
}

void KvNodes::MakeRoomForNode() {
  if (tree_.full() && order_.OldestIdleRoot() != kNoNode) Forget(order_.OldestIdleRoot());
  if (tree_.full()) Grow(2 * tree_.num_nodes());
}

BlockId KvNodes::TakeTail(NodeId tail) {
  NodeRecord& node = nodes_[tail];
  CHECK(tree_.IsTail(tail) && node.kv.on_device() && node.holds > 0);
  if (node.holds > 1 || node.kv.storing) return kNullBlock;
  const NodeId parent = tree_.Parent(tail);
  const BlockId block = std::exchange(node.kv.block, kNullBlock);
  if (node.kv.page != kNoPage) pages_.GiveBack(tail);
  node.holds = 0;
  Forget(tail);
  Release(parent);
  return block;
}

// Requires a node without holds, children and KV.
void KvNodes::Forget(NodeId id) {
  CHECK(!Held(id) && !Kv(id).anywhere());
  const NodeId parent = tree_.Parent(id);
  order_.Unfile(id);
  changes_.ReportForget(id);
  if (parent == kNoNode) {
    shares_.Close(tree_.AccountOf(id));
  } else {
    keepers_.MoveUp(id);
  }
  tree_.Remove(id);
  if (parent == kNoNode || Held(parent) || !tree_.IsRoot(parent)) return;
  if (tree_.NumChildren(parent) == 0) File(parent);
}

void KvNodes::ForgetSubtree(NodeId top) {
  for (NodeId id = tree_.FirstLeaf(top), next; id != kNoNode; id = next) {
    next = tree_.NextInPostOrder(id, top);
    if (Kv(id).block != kNullBlock) FreeBlock(id);
    if (Kv(id).page != kNoPage) pages_.GiveBack(id);
    Forget(id);
  }
}

// --- Blocks.

void KvNodes::SetBlock(NodeId id, BlockId block, bool loading) {
  CHECK(Held(id) && Kv(id).block == kNullBlock && pool_.state(block) == BlockState::kTaken);
  nodes_[id].kv.block = block;
  nodes_[id].kv.loading = loading;
  changes_.ReportKv(id);
}

void KvNodes::FreeBlock(NodeId id) {
  order_.UnfileBlock(id);
  pool_.Release(std::exchange(nodes_[id].kv.block, kNullBlock));
  changes_.ReportKv(id);
}

BlockId KvNodes::Evict() {
  const NodeId victim = order_.TakeVictim();
  CHECK_NE(victim, kNoNode);
  const BlockId block = std::exchange(nodes_[victim].kv.block, kNullBlock);
  changes_.ReportKv(victim);
  if (Kv(victim).page == kNoPage) {
    Forget(victim);
  } else {
    keepers_.ReportTierLost(victim);
  }
  return block;
}

void KvNodes::ForgetDevice() {
  for (NodeId root = 0; root < tree_.num_nodes(); ++root) {
    if (!tree_.IsRoot(root)) continue;
    for (NodeId id = tree_.FirstLeaf(root), next; id != root; id = next) {
      next = tree_.NextInPostOrder(id, root);
      if (Kv(id).block == kNullBlock) continue;
      CHECK(!Kv(id).loading);
      FreeBlock(id);
      if (Kv(id).page == kNoPage && !Held(id)) {
        Forget(id);
      } else {
        keepers_.ReportTierLost(id);
      }
    }
  }
}

// --- Pages.

void KvNodes::TakePage(NodeId id) {
  CHECK(Held(id));
  const AccountId account = tree_.AccountOf(id);
  const auto reuse = [this](NodeId spare) {
    CHECK(spare != kNoNode && !pages_.HasBelow(spare));
    LosePage(spare);
  };
  // More than one only after the tenant's limit was lowered.
  while (shares_.Left(account) <= 0) reuse(order_.OldestSparePage(account));
  if (pages_.num_free() == 0) reuse(order_.OldestSparePage());
  pages_.Take(id);
  nodes_[id].kv.storing = true;
}

PageId KvNodes::BeginRead(NodeId id) {
  pages_.BeginRead(Kv(id).page);
  FileAgain(id);
  return Kv(id).page;
}

void KvNodes::EndRead(NodeId id, PageId page) {
  // A page that is read goes to no other node, so a node that has it is the one that had it.
  const bool still_has_it = tree_.InUse(id) && Kv(id).page == page;
  pages_.EndRead(page);
  if (still_has_it) FileAgain(id);
}

bool KvNodes::EndCopy(NodeId id) {
  NodeKv& kv = nodes_[id].kv;
  kv.loading = kv.storing = false;
  changes_.ReportKv(id);
  if (!pages_.Doomed(id)) return true;
  pages_.GiveBack(id);
  keepers_.ReportTierLost(id);
  return false;
}

void KvNodes::LosePage(NodeId id) {
  changes_.ReportKv(id);
  if (Kv(id).copying()) return pages_.Doom(id);
  pages_.GiveBack(id);
  order_.UnfilePage(id);
  if (!Held(id) && Kv(id).block == kNullBlock) return ForgetSubtree(id);
  if (order_.ListOf(id) == EvictionOrder::kSaved) {
    order_.Unfile(id);
    File(id);
  }
  keepers_.ReportTierLost(id);
}

}  // namespace quire
