// Counts that spread upwards, lists that are filed deepest first, and two tiers.
#include "engine/schedule/kv/prefix_tree.h"

#include <algorithm>
#include <random>
#include <utility>

#include "kernels/check.h"

namespace quire {
namespace {

// Nodes for tenants: there may be more as long as some KV is in both tiers, and by allocating.
constexpr int32_t kSpareRoots = 64;

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device() | 1;
}

}  // namespace

PrefixTree::PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages)
    : PrefixTree(pool, block_size, num_pages, RandomSeed()) {}

PrefixTree::PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages, uint64_t hash_seed)
    : pool_(pool),
      block_size_(block_size),
      num_pages_(num_pages),
      index_(0, block_size, hash_seed),
      children_(0, 0),
      keepers_(0, 0),
      evictable_(kNumEvictable, 0),
      spare_pages_(1, 0) {
  Grow(pool.total() + num_pages + kSpareRoots);
  free_pages_.reserve(num_pages);
  for (PageId page = num_pages - 1; page >= 0; --page) free_pages_.push_back(page);
  pool_.SetReclaimer(this);
}

// --- What is there.

NodeId PrefixTree::Find(TenantId tenant, std::span<const int32_t> tokens) {
  NodeId node = FindRoot(tenant);
  while (tokens.size() >= static_cast<size_t>(block_size_)) {
    const NodeId child = index_.Find(node, tokens.first(block_size_));
    if (child == kNoNode) break;
    const NodeKv& kv = nodes_[child].kv;
    if (kv.block == kNullBlock && kv.page == kNoPage) break;
    node = child;
    tokens = tokens.subspan(block_size_);
  }
  return node;
}

int32_t PrefixTree::NumTokens(NodeId id) const {
  const Node& node = nodes_[id];
  return node.filled > 0 ? (node.depth - 1) * block_size_ + node.filled : node.depth * block_size_;
}

void PrefixTree::Chain(NodeId node, std::vector<NodeId>& chain) const {
  chain.resize(nodes_[node].depth);
  for (auto place = chain.rbegin(); place != chain.rend(); ++place) {
    *place = node;
    node = nodes_[node].parent;
  }
}

// --- Holders.

void PrefixTree::Hold(NodeId id) {
  for (; id != kNoNode; id = nodes_[id].parent) {
    Node& node = nodes_[id];
    if (node.holds++ > 0) return;
    Unfile(id);
    if (node.kv.block != kNullBlock) pool_.Uncache(node.kv.block);
  }
}

int32_t PrefixTree::HoldCost(NodeId id) const {
  int32_t cost = 0;
  for (; id != kNoNode && nodes_[id].holds == 0; id = nodes_[id].parent) {
    cost += nodes_[id].kv.block != kNullBlock;
  }
  return cost;
}

void PrefixTree::Release(NodeId id) {
  while (id != kNoNode) {
    Node& node = nodes_[id];
    CHECK_GT(node.holds, 0);
    if (--node.holds > 0) return;
    CHECK(!Copying(node));
    const NodeId parent = node.parent;
    if (!IsRoot(node) && node.kv.block == kNullBlock && node.kv.page == kNoPage) {
      ForgetSubtree(id);
    } else {
      if (node.kv.block != kNullBlock) pool_.Cache(node.kv.block);
      File(id);
    }
    id = parent;
  }
}

void PrefixTree::Keep(NodeId node, uint64_t keeper) {
  CHECK_GT(nodes_[node].depth, 0);
  if (keeper >= static_cast<uint64_t>(keepers_.num_ids())) {
    const int32_t num_keepers = std::max(2 * keepers_.num_ids(), static_cast<int32_t>(keeper) + 1);
    keepers_.Grow(keepers_.num_lists(), num_keepers);
  }
  CHECK(!keepers_.Contains(static_cast<int32_t>(keeper)));
  keepers_.PushBack(node, static_cast<int32_t>(keeper));
  for (NodeId id = node; id != kNoNode && nodes_[id].keeps++ == 0;) id = nodes_[id].parent;
  // All of the chain counts as used now, not only what was not kept before: else an ancestor could
  // stand in front of its child.
  for (NodeId id = node; !IsRoot(nodes_[id]) && !Held(id); id = nodes_[id].parent) {
    Unfile(id);
    File(id);
  }
}

void PrefixTree::Unkeep(NodeId node, uint64_t keeper) {
  CHECK(keeper < static_cast<uint64_t>(keepers_.num_ids()));
  CHECK_EQ(keepers_.ListOf(static_cast<int32_t>(keeper)), node);
  keepers_.Erase(static_cast<int32_t>(keeper));
  for (NodeId id = node; id != kNoNode && --nodes_[id].keeps == 0; id = nodes_[id].parent) {
    if (IsRoot(nodes_[id]) || Held(id)) continue;
    Unfile(id);
    File(id);
  }
}

int32_t PrefixTree::ListFor(NodeId id) const {
  const Node& node = nodes_[id];
  if (IsRoot(node)) return children_.size(id) == 0 ? int32_t{kIdleRoot} : IdLists::kNone;
  if (node.kv.block == kNullBlock) return IdLists::kNone;
  if (node.keeps == 0) return kUnkept;
  return HasPage(node) ? kSaved : kUnsaved;
}

// Puts a node that nobody holds behind all that were filed before.
void PrefixTree::File(NodeId id) {
  nodes_[id].filed = ++clock_;
  const int32_t list = ListFor(id);
  if (list != IdLists::kNone) evictable_.PushBack(list, id);
  if (nodes_[id].keeps == 0 && HasPage(nodes_[id])) spare_pages_.PushBack(0, id);
}

void PrefixTree::Unfile(NodeId id) {
  if (evictable_.Contains(id)) evictable_.Erase(id);
  if (spare_pages_.Contains(id)) spare_pages_.Erase(id);
}

// --- Growth.

PrefixTree::Inserted PrefixTree::Insert(NodeId parent, std::span<const int32_t> tokens,
                                        BlockId block) {
  CHECK(Held(parent) && !IsTail(parent));
  CHECK(pool_.state(block) == BlockState::kTaken);
  NodeId id = index_.Find(parent, tokens);
  if (id == kNoNode) {
    id = NewChild(parent, tokens);
  } else if (Held(id) && nodes_[id].kv.block != kNullBlock) {
    Hold(id);
    return {id, false};
  }
  // A block that nobody holds makes room for the caller's, so that no more blocks are in use than
  // before.
  NodeKv& kv = nodes_[id].kv;
  if (kv.block != kNullBlock) {
    Unfile(id);
    pool_.Release(kv.block);
    kv.block = kNullBlock;
  }
  Hold(id);
  kv.block = block;
  return {id, true};
}

NodeId PrefixTree::InsertTail(NodeId parent, int32_t filled, BlockId block) {
  CHECK(Held(parent) && !IsTail(parent));
  CHECK(pool_.state(block) == BlockState::kTaken);
  const NodeId tail = NewTail(parent, filled);
  Hold(tail);
  nodes_[tail].kv.block = block;
  return tail;
}

BlockId PrefixTree::TakeTail(NodeId tail) {
  Node& node = nodes_[tail];
  CHECK(IsTail(tail) && node.kv.on_device() && node.holds > 0);
  if (node.holds > 1 || node.kv.storing) return kNullBlock;
  const NodeId parent = node.parent;
  const BlockId block = std::exchange(node.kv.block, kNullBlock);
  if (node.kv.page != kNoPage) GiveBackPage(tail);
  node.holds = 0;
  Forget(tail);
  Release(parent);
  return block;
}

NodeId PrefixTree::FindRoot(TenantId tenant) {
  const auto found = roots_.find(tenant);
  if (found != roots_.end()) return found->second;
  const NodeId root = NewNode(kNoNode);
  nodes_[root].tenant = tenant;
  roots_.emplace(tenant, root);
  File(root);
  return root;
}

// A node without KV, held by nobody.
NodeId PrefixTree::NewNode(NodeId parent) {
  if (free_nodes_.empty() && evictable_.size(kIdleRoot) > 0) {
    const NodeId root = evictable_.Front(kIdleRoot);
    roots_.erase(nodes_[root].tenant);
    Forget(root);
  }
  if (free_nodes_.empty()) Grow(2 * static_cast<int32_t>(nodes_.size()));
  const NodeId id = free_nodes_.back();
  free_nodes_.pop_back();
  nodes_[id].parent = parent;
  nodes_[id].depth = parent == kNoNode ? 0 : nodes_[parent].depth + 1;
  if (parent != kNoNode) children_.PushBack(parent, id);
  return id;
}

NodeId PrefixTree::NewChild(NodeId parent, std::span<const int32_t> tokens) {
  const NodeId id = NewNode(parent);
  index_.Insert(id, parent, tokens);
  return id;
}

NodeId PrefixTree::NewTail(NodeId parent, int32_t filled) {
  CHECK(filled > 0 && filled < block_size_);
  const NodeId id = NewNode(parent);
  nodes_[id].filled = filled;
  return id;
}

// To `count` nodes, used or not.
void PrefixTree::Grow(int32_t count) {
  const int32_t before = static_cast<int32_t>(nodes_.size());
  nodes_.resize(count);
  free_nodes_.reserve(count);
  for (NodeId id = count - 1; id >= before; --id) free_nodes_.push_back(id);
  index_.Grow(count);
  children_.Grow(count, count);
  keepers_.Grow(count, keepers_.num_ids());
  evictable_.Grow(kNumEvictable, count);
  spare_pages_.Grow(1, count);
}

// Requires that nobody holds it, that it has neither children nor KV.
void PrefixTree::Forget(NodeId id) {
  Node& node = nodes_[id];
  CHECK(node.holds == 0 && children_.size(id) == 0);
  CHECK(node.kv.block == kNullBlock && node.kv.page == kNoPage);
  const NodeId parent = node.parent;
  Unfile(id);
  if (parent != kNoNode) {
    if (!IsTail(id)) index_.Erase(id);
    children_.Erase(id);
    MoveKeepersUp(id);
  }
  node = Node();
  free_nodes_.push_back(id);
  if (parent == kNoNode || Held(parent) || !IsRoot(nodes_[parent])) return;
  if (children_.size(parent) == 0) File(parent);
}

// Children first. Nobody holds any of them.
void PrefixTree::ForgetSubtree(NodeId top) {
  for (NodeId id = FirstLeaf(top), next; id != kNoNode; id = next) {
    next = NextInPostOrder(id, top);
    NodeKv& kv = nodes_[id].kv;
    if (kv.block != kNullBlock) pool_.Release(std::exchange(kv.block, kNullBlock));
    if (kv.page != kNoPage) GiveBackPage(id);
    Forget(id);
  }
}

void PrefixTree::MoveKeepersUp(NodeId id) {
  if (nodes_[id].keeps == 0) return;
  CHECK_EQ(nodes_[id].keeps, keepers_.size(id));
  const NodeId parent = nodes_[id].parent;
  const bool to_root = IsRoot(nodes_[parent]);
  --nodes_[parent].keeps;  // the child
  if (!to_root) nodes_[parent].keeps += nodes_[id].keeps;
  for (int32_t keeper = keepers_.Front(id); keeper != IdLists::kNone; keeper = keepers_.Front(id)) {
    keepers_.Erase(keeper);
    if (!to_root) keepers_.PushBack(parent, keeper);
    if (keeper_ != nullptr) keeper_->OnLost(keeper, to_root ? kNoNode : parent);
  }
}

NodeId PrefixTree::FirstLeaf(NodeId id) const {
  while (children_.size(id) > 0) id = children_.Front(id);
  return id;
}

// The next one below `top` after `id`, children before their parent; kNoNode after `top` itself.
// Still right when `id` has been forgotten meanwhile.
NodeId PrefixTree::NextInPostOrder(NodeId id, NodeId top) const {
  if (id == top) return kNoNode;
  const NodeId sibling = children_.Next(id);
  return sibling == kNoNode ? nodes_[id].parent : FirstLeaf(sibling);
}

// --- Tiers.

int32_t PrefixTree::num_free_pages() const {
  return static_cast<int32_t>(free_pages_.size()) + spare_pages_.size(0);
}

// Whether a child of `parent` can be given a page.
bool PrefixTree::PageToHave(NodeId parent) const {
  return num_free_pages() > 0 && (IsRoot(nodes_[parent]) || HasPage(nodes_[parent]));
}

// For a held node, whose parent can therefore not lose its own.
void PrefixTree::TakePage(NodeId id) {
  if (free_pages_.empty()) CHECK(DropPage(spare_pages_.Front(0)));
  nodes_[id].kv.page = free_pages_.back();
  free_pages_.pop_back();
  ++nodes_[nodes_[id].parent].paged_children;
}

void PrefixTree::GiveBackPage(NodeId id) {
  Node& node = nodes_[id];
  free_pages_.push_back(std::exchange(node.kv.page, kNoPage));
  if (!std::exchange(node.doomed, false)) --nodes_[node.parent].paged_children;
}

PageId PrefixTree::BeginStore(NodeId id) {
  NodeKv& kv = nodes_[id].kv;
  CHECK(Held(id) && kv.on_device() && kv.page == kNoPage);
  if (!PageToHave(nodes_[id].parent)) return kNoPage;
  TakePage(id);
  kv.storing = true;
  return kv.page;
}

void PrefixTree::EndStore(NodeId id, bool ok) {
  Node& node = nodes_[id];
  CHECK(Held(id) && node.kv.storing);
  node.kv.storing = false;
  if (node.doomed) {
    GiveBackPage(id);
  } else if (!ok) {
    LosePages(id);
  }
}

void PrefixTree::BeginLoad(NodeId id, BlockId block) {
  NodeKv& kv = nodes_[id].kv;
  CHECK(Held(id) && kv.on_host() && kv.block == kNullBlock);
  CHECK(pool_.state(block) == BlockState::kTaken);
  kv.block = block;
  kv.loading = true;
}

void PrefixTree::EndLoad(NodeId id, bool ok, bool page_bad) {
  Node& node = nodes_[id];
  CHECK(Held(id) && node.kv.loading);
  node.kv.loading = false;
  if (!ok) pool_.Release(std::exchange(node.kv.block, kNullBlock));
  if (node.doomed) {
    GiveBackPage(id);
  } else if (page_bad) {
    LosePages(id);
  }
}

PrefixTree::Inserted PrefixTree::InsertOnHost(NodeId parent, std::span<const int32_t> tokens,
                                              bool tail) {
  CHECK(Held(parent) && !IsTail(parent));
  NodeId id = tail ? kNoNode : index_.Find(parent, tokens);
  const bool has_page = id != kNoNode && nodes_[id].kv.page != kNoPage;
  if (!has_page && !PageToHave(parent)) return {};
  if (id != kNoNode && HoldCost(id) > pool_.available()) return {};
  if (id == kNoNode) {
    id = tail ? NewTail(parent, static_cast<int32_t>(tokens.size())) : NewChild(parent, tokens);
  }
  Hold(id);
  if (has_page) return {id, false};
  TakePage(id);
  nodes_[id].kv.storing = true;
  return {id, true};
}

bool PrefixTree::DropBlock(NodeId id) {
  Node& node = nodes_[id];
  if (Held(id) || node.kv.block == kNullBlock || !HasPage(node)) return false;
  evictable_.Erase(id);
  pool_.Release(std::exchange(node.kv.block, kNullBlock));
  return true;
}

bool PrefixTree::DropPage(NodeId id) {
  const Node& node = nodes_[id];
  if (Held(id) || !HasPage(node) || node.paged_children > 0) return false;
  LosePage(id);
  return true;
}

// Takes a node's page from it, at once or when the copy that uses it has ended. Blocks of
// descendants are of no use when no KV is left here.
void PrefixTree::LosePage(NodeId id) {
  Node& node = nodes_[id];
  if (Copying(node)) {
    node.doomed = true;
    --nodes_[node.parent].paged_children;
    return;
  }
  GiveBackPage(id);
  if (Held(id)) return;
  if (spare_pages_.Contains(id)) spare_pages_.Erase(id);
  if (node.kv.block == kNullBlock) {
    ForgetSubtree(id);
  } else if (evictable_.ListOf(id) == kSaved) {
    Unfile(id);
    File(id);
  }
}

void PrefixTree::LosePages(NodeId top) {
  for (NodeId id = FirstLeaf(top), next; id != kNoNode; id = next) {
    next = NextInPostOrder(id, top);
    if (HasPage(nodes_[id])) LosePage(id);
  }
}

// --- Pressure and faults.

BlockId PrefixTree::Reclaim() {
  const NodeId unkept = evictable_.Front(kUnkept);
  const NodeId saved = evictable_.Front(kSaved);
  NodeId victim = unkept;
  if (unkept == kNoNode || (saved != kNoNode && nodes_[saved].filed < nodes_[unkept].filed)) {
    victim = saved;
  }
  if (victim == kNoNode) {
    victim = evictable_.Front(kUnsaved);
    ++num_kept_lost_;
  }
  CHECK_NE(victim, kNoNode);
  ++num_evicted_;
  evictable_.Erase(victim);
  const BlockId block = std::exchange(nodes_[victim].kv.block, kNullBlock);
  if (nodes_[victim].kv.page == kNoPage) Forget(victim);
  return block;
}

int32_t PrefixTree::num_lossless() const {
  return evictable_.size(kUnkept) + evictable_.size(kSaved);
}

void PrefixTree::ForgetDevice() {
  for (NodeId root = 0; root < static_cast<NodeId>(nodes_.size()); ++root) {
    if (!IsRoot(nodes_[root])) continue;
    for (NodeId id = FirstLeaf(root), next; id != root; id = next) {
      next = NextInPostOrder(id, root);
      NodeKv& kv = nodes_[id].kv;
      if (kv.block == kNullBlock) continue;
      CHECK(!kv.loading);
      if (evictable_.Contains(id)) evictable_.Erase(id);
      pool_.Release(std::exchange(kv.block, kNullBlock));
      if (kv.page == kNoPage && !Held(id)) Forget(id);
    }
  }
}

}  // namespace quire
