// Calls both trees with the same arguments and compares the answers.
#include "tests/engine/schedule/tree_lockstep.h"

#include <algorithm>
#include <utility>

namespace quire {

using Node = ReferenceTree::Node;

TreeLockstep::TreeLockstep(const Shape& shape)
    : shape_(shape),
      pool_(shape.num_blocks + 1),
      tree_(pool_, shape.block_size, shape.num_pages, shape.hash_seed),
      reference_(shape.block_size, shape.num_pages) {
  tree_.SetKeeper(this);
  tree_.SetAccounts(&accounts_);
}

void TreeLockstep::OnLost(uint64_t keeper, NodeId parent) {
  ++tally_.moved_keepers;
  EXPECT_TRUE(parent == kNoNode || tree_.Depth(parent) > 0);
  kept_[keeper] = parent;
}

void TreeLockstep::OnTierLost(NodeId node) {
  ++tally_.tiers_lost;
  EXPECT_GT(tree_.NumKeepers(node) + tree_.NumKeptChildren(node), 0);
  tier_lost_.insert(node);
}

// --- Holders.

Node* TreeLockstep::Find(TenantId tenant, const Tokens& tokens) {
  Node* node = reference_.Find(tenant, tokens);
  const NodeId id = tree_.Find(tenant, tokens);
  // The tree may forget the root of a tenant without nodes and make a new one; the reference keeps
  // it.
  const bool idle_root =
      node->parent == nullptr && node->holders == 0 && reference_.Children(node).empty();
  if (idle_root) node->id = id;
  EXPECT_EQ(id, node->id);
  tally_.found += node->parent != nullptr;
  return node;
}

bool TreeLockstep::Hold(Node* node) {
  const int32_t cost = reference_.HoldCost(node);
  EXPECT_EQ(tree_.HoldCost(node->id), cost);
  if (cost > pool_.available()) return false;
  tree_.Hold(node->id);
  reference_.Hold(node);
  holders_.push_back(node);
  return true;
}

void TreeLockstep::Release(Node* node) {
  holders_.erase(std::ranges::find(holders_, node));
  tree_.Release(node->id);
  reference_.Release(node);
}

void TreeLockstep::ReleaseAll() {
  while (!holders_.empty()) Release(holders_.back());
}

void TreeLockstep::Keep(Node* node, uint64_t keeper) {
  tree_.Keep(node->id, keeper);
  reference_.Keep(node, keeper);
  kept_[keeper] = node->id;
}

void TreeLockstep::Unkeep(uint64_t keeper) {
  for (Node* node : reference_.All()) {
    if (!node->keepers.contains(keeper)) continue;
    ASSERT_EQ(kept_[keeper], node->id);
    tree_.Unkeep(node->id, keeper);
    reference_.Unkeep(node, keeper);
    kept_.erase(keeper);
    return;
  }
}

// --- Growth.

Node* TreeLockstep::Insert(Node* parent, const Tokens& tokens) {
  const BlockId block = Take();
  if (block == kNullBlock) return nullptr;
  Node* node = reference_.Child(parent, tokens);
  const bool has_block = node != nullptr && node->has_block();
  const bool adopted = !has_block || !reference_.Held(node);
  tally_.husks_filled += node != nullptr && !node->has_kv();
  tally_.not_adopted += !adopted;
  tally_.swapped += has_block && adopted;
  const auto inserted = tree_.Insert(parent->id, tokens, block);
  EXPECT_EQ(inserted.adopted, adopted);
  if (node == nullptr) {
    node = reference_.Add(parent, tokens, false);
    node->id = inserted.node;
  }
  EXPECT_EQ(inserted.node, node->id);
  if (adopted) {
    node->kv.block = block;
  } else {
    private_.push_back(block);
  }
  reference_.Hold(node);
  holders_.push_back(node);
  return node;
}

Node* TreeLockstep::InsertTail(Node* parent, const Tokens& tokens) {
  const BlockId block = Take();
  if (block == kNullBlock) return nullptr;
  Node* node = reference_.Add(parent, tokens, true);
  node->id = tree_.InsertTail(parent->id, static_cast<int32_t>(tokens.size()), block);
  node->kv.block = block;
  reference_.Hold(node);
  holders_.push_back(node);
  return node;
}

bool TreeLockstep::TakeTail(Node* tail) {
  const BlockId expected = tail->holders == 1 ? tail->kv.block : kNullBlock;
  EXPECT_EQ(tree_.TakeTail(tail->id), expected);
  if (expected == kNullBlock) return false;
  ++tally_.tails_taken;
  private_.push_back(expected);
  holders_.erase(std::ranges::find(holders_, tail));
  reference_.TakeTail(tail);
  return true;
}

// --- Tiers.

bool TreeLockstep::BeginStore(Node* node) {
  if (!Hold(node)) return false;
  holders_.pop_back();
  const bool can = reference_.PageToHave(node->parent);
  CountRefusal(node->parent);
  EXPECT_EQ(tree_.host().BeginStore(node->id) != kNoPage, can);
  if (can) {
    GivePage(node);
    copies_.push_back({node});
  } else {
    tree_.Release(node->id);
    reference_.Release(node);
  }
  return can;
}

// Counts a page that is refused for the bound alone.
void TreeLockstep::CountRefusal(Node* parent) {
  const TenantId tenant = reference_.TenantOf(parent);
  tally_.bound_refused += reference_.NumFreePages(tenant) == 0 && reference_.NumFreePages() > 0;
}

void TreeLockstep::SetBound(TenantId tenant, int32_t pages) {
  // A limit between whole blocks is the lower number of them, a limit of 0 none at all.
  const int64_t tokens = int64_t{pages} * shape_.block_size + (shape_.block_size > 1 ? 1 : 0);
  limits_[tenant].max_host_kv_tokens = tokens;
  const int32_t before = reference_.NumPages(tenant);
  accounts_.SetTable({.tenants = {limits_.begin(), limits_.end()}});
  tree_.host().GiveBackExcess();
  reference_.SetBound(tenant, pages);
  tally_.bound_lost += before - reference_.NumPages(tenant);
}

void TreeLockstep::GivePage(Node* node) {
  const size_t before = reference_.All().size();
  tally_.bound_reused += reference_.AtBound(reference_.TenantOf(node));
  reference_.GivePage(node, tree_.Kv(node->id).page);
  tally_.pages_reclaimed += reference_.All().size() < before;
  node->kv.storing = true;
}

bool TreeLockstep::BeginLoad(Node* node) {
  if (reference_.HoldCost(node) >= pool_.available() || !Hold(node)) return false;
  holders_.pop_back();
  const BlockId block = Take();
  tree_.host().BeginLoad(node->id, block);
  node->kv.block = block;
  node->kv.loading = true;
  copies_.push_back({node, true});
  return true;
}

Node* TreeLockstep::Import(Node* parent, const Tokens& tokens, bool tail) {
  Node* node = tail ? nullptr : reference_.Child(parent, tokens);
  const bool has_page = node != nullptr && node->kv.page != kNoPage;
  if (!has_page) CountRefusal(parent);
  const bool can = (has_page || reference_.PageToHave(parent)) &&
                   (node == nullptr || reference_.HoldCost(node) <= pool_.available());
  const auto imported = tree_.host().InsertOnHost(parent->id, tokens, tail);
  EXPECT_EQ(imported.node != kNoNode, can);
  if (!can) return nullptr;
  EXPECT_EQ(imported.adopted, !has_page);
  if (node == nullptr) {
    node = reference_.Add(parent, tokens, tail);
    node->id = imported.node;
  }
  EXPECT_EQ(imported.node, node->id);
  reference_.Hold(node);
  if (has_page) {
    holders_.push_back(node);
    return nullptr;
  }
  GivePage(node);
  copies_.push_back({node, false, true});
  return node;
}

void TreeLockstep::EndCopy(Node* node, bool ok, bool page_bad) {
  const auto copy = std::ranges::find(copies_, node, &Copy::node);
  const bool load = copy->load;
  const bool doomed = node->doomed;
  copies_.erase(copy);
  if (load) {
    tree_.host().EndLoad(node->id, ok, page_bad);
    if (!ok) node->kv.block = kNullBlock;
  } else {
    tree_.host().EndStore(node->id, ok);
  }
  reference_.EndCopy(node);
  if (!doomed && (load ? page_bad : !ok)) reference_.LosePages(node);
  for (Node* each : reference_.All()) tally_.doomed += each->doomed;
  Compare();
  tree_.Release(node->id);
  reference_.Release(node);
}

bool TreeLockstep::DropBlock(Node* node) {
  const bool can = node->has_page() && node->has_block() && !reference_.Held(node);
  EXPECT_EQ(tree_.host().DropBlock(node->id), can);
  if (can) node->kv.block = kNullBlock;
  return can;
}

bool TreeLockstep::DropPage(Node* node) {
  const bool can = node->has_page() && !reference_.Held(node) &&
                   std::ranges::none_of(reference_.Children(node),
                                        [](Node* child) { return child->has_page(); });
  EXPECT_EQ(tree_.host().DropPage(node->id), can);
  if (can) reference_.LosePage(node);
  return can;
}

// --- The pool.

BlockId TreeLockstep::Take() {
  if (pool_.available() == 0) return kNullBlock;
  Node* victim = pool_.num_free() == 0 ? reference_.Victim() : nullptr;
  BlockId expected = kNullBlock;
  if (victim != nullptr) {
    expected = victim->kv.block;
    ++tally_.evicted;
    num_kept_lost_ += victim == reference_.OldestUnsaved();
    reference_.Evict();
  }
  const BlockId block = pool_.Take();
  EXPECT_TRUE(expected == kNullBlock || block == expected);
  return block;
}

void TreeLockstep::TakePrivate() {
  const BlockId block = Take();
  if (block != kNullBlock) private_.push_back(block);
}

void TreeLockstep::ReleasePrivate(size_t i) {
  pool_.Release(private_[i]);
  private_.erase(private_.begin() + i);
}

// Imports continue: the server fills their pages, not the device.
void TreeLockstep::ForgetDevice() {
  ++tally_.devices_lost;
  std::vector<Copy> copies = copies_;
  std::erase_if(copies, [](const Copy& copy) { return copy.import; });
  for (const Copy& copy : copies) EndCopy(copy.node, false);
  tree_.ForgetDevice();
  reference_.ForgetDevice();
}

void TreeLockstep::Quiesce() {
  while (!copies_.empty()) EndCopy(copies_.back().node, false);
  ReleaseAll();
  while (!kept_.empty()) {
    const uint64_t keeper = kept_.begin()->first;
    Unkeep(keeper);
    kept_.erase(keeper);
  }
  while (!private_.empty()) ReleasePrivate(0);
  pool_.Unreserve(pool_.reserved());
  Compare();
  ASSERT_EQ(pool_.available(), shape_.num_blocks);
  ASSERT_EQ(tree_.host().num_free_pages(), shape_.num_pages);
  while (pool_.available() > 0) TakePrivate();
  Compare();
  for (Node* node : reference_.All()) ASSERT_TRUE(node->has_page());
}

// --- All visible state.

void TreeLockstep::Compare() {
  if (testing::Test::HasFailure()) return;
  tree_.CheckInvariants();
  std::map<uint64_t, NodeId> kept;
  for (Node* node : reference_.All()) {
    CompareNode(node);
    for (const uint64_t keeper : node->keepers) kept[keeper] = node->id;
  }
  std::map<uint64_t, NodeId> told = kept_;
  std::erase_if(told, [](const auto& each) { return each.second == kNoNode; });
  EXPECT_EQ(told, kept);
  tier_lost_.clear();
  CompareNumbers();
  CompareEvents();
}

// The events say where each node that a prompt can find has its KV.
void TreeLockstep::CompareEvents() {
  for (const KvEventSource::Change& change : tree_.events().Take()) {
    ASSERT_TRUE(replays_.contains(change.tenant));
    replays_[change.tenant].Apply(change.events, shape_.block_size);
    tally_.events += static_cast<int64_t>(change.events.size());
    if (change.complete) complete_.insert(change.tenant);
  }
  std::map<TenantId, EventReplay::Blocks> expected;
  for (Node* node : reference_.All()) {
    if (node->tail) continue;
    ReplayedBlock block{.depth = reference_.Depth(node) - 1, .tokens = node->tokens};
    block.on[static_cast<int>(KvTier::kDevice)] = node->kv.on_device();
    block.on[static_cast<int>(KvTier::kHost)] = node->has_page() && !node->kv.storing;
    if (!block.on[0] && !block.on[1]) continue;
    std::vector<Node*> chain = reference_.Chain(node);
    KvBlockHash hash = kNoKvBlock;
    for (auto each = chain.rbegin(); each != chain.rend(); ++each) {
      block.parent = std::exchange(hash, HashKvBlock(hash, (*each)->tokens));
    }
    expected[reference_.TenantOf(node)][hash] = block;
  }
  for (const auto& [tenant, replay] : replays_) {
    if (complete_.contains(tenant)) {
      ASSERT_EQ(replay.blocks(), expected[tenant]);
    }
    for (const auto& [hash, block] : replay.blocks()) ASSERT_EQ(block, expected[tenant][hash]);
  }
}

void TreeLockstep::Watch(TenantId tenant) {
  if (replays_.erase(tenant) > 0) {
    complete_.erase(tenant);
    return tree_.events().End(tenant);
  }
  replays_[tenant];
  tree_.events().Begin(tenant);
}

void TreeLockstep::ContinueWalk(int32_t nodes) { tree_.events().Continue(nodes); }

void TreeLockstep::Flush(bool sessions) {
  const int64_t free_blocks = pool_.num_free();
  const FlushedCache flushed = tree_.Flush({.sessions = sessions});
  reference_.Flush(sessions);
  EXPECT_EQ(pool_.num_free(), free_blocks + flushed.blocks);
  EXPECT_EQ(flushed.kept_blocks, pool_.total() - pool_.num_free());
  tally_.flushed += flushed.blocks + flushed.pages;
}

void TreeLockstep::CompareNode(Node* node) {
  const NodeKv& kv = tree_.Kv(node->id);
  ASSERT_EQ(kv.block, node->kv.block);
  ASSERT_EQ(kv.page, node->kv.page);
  ASSERT_EQ(kv.loading, node->kv.loading);
  ASSERT_EQ(kv.storing, node->kv.storing);
  ASSERT_EQ(tree_.Held(node->id), reference_.Held(node));
  ASSERT_EQ(tree_.IsTail(node->id), node->tail);
  ASSERT_EQ(tree_.Depth(node->id), reference_.Depth(node));
  ASSERT_EQ(tree_.NumTokens(node->id), reference_.NumTokens(node));
  ASSERT_EQ(tree_.Parent(node->id), node->parent->id);
  ASSERT_EQ(tree_.NumKeepers(node->id), static_cast<int32_t>(node->keepers.size()));
  const bool off_device = node->was_on_device && !kv.on_device();
  const bool off_host = node->was_on_host && !kv.on_host();
  if ((off_device || off_host) && reference_.Kept(node)) {
    ASSERT_TRUE(tier_lost_.contains(node->id));
  }
  node->was_on_device = kv.on_device();
  node->was_on_host = kv.on_host();
  std::vector<Node*> children = reference_.Children(node);
  ASSERT_EQ(tree_.NumKeptChildren(node->id),
            std::ranges::count_if(children, [&](Node* child) { return reference_.Kept(child); }));
}

void TreeLockstep::CompareNumbers() {
  const int32_t in_use = static_cast<int32_t>(private_.size()) + reference_.NumBlocks();
  ASSERT_EQ(pool_.num_free(), shape_.num_blocks - in_use);
  ASSERT_EQ(pool_.num_cached(), reference_.NumEvictable());
  ASSERT_GE(pool_.available(), 0);
  ASSERT_EQ(tree_.evictions().num_lossless(), reference_.NumLossless());
  ASSERT_EQ(tree_.host().num_free_pages(), reference_.NumFreePages());
  ASSERT_EQ(tree_.evictions().num_evicted(), tally_.evicted);
  ASSERT_EQ(tree_.evictions().num_kept_lost(), num_kept_lost_);
  Node* unsaved = reference_.OldestUnsaved();
  ASSERT_EQ(tree_.evictions().OldestUnsaved(), unsaved == nullptr ? kNoNode : unsaved->id);
  tally_.kept_lost = num_kept_lost_;
  CompareTenants();
}

// Each tenant's pages and orders, and what its account says.
void TreeLockstep::CompareTenants() {
  std::map<TenantId, NodeId> roots;
  const NodeTree& nodes = tree_.nodes().tree();
  for (NodeId id = 0; id < nodes.num_nodes(); ++id) {
    if (nodes.IsRoot(id)) roots[nodes.Key(id)] = id;
  }
  for (const auto& [tenant, root] : roots) {
    const AccountId account = tree_.AccountOf(root);
    ASSERT_EQ(accounts_[account].tenant, tenant);
    ASSERT_EQ(accounts_[account].host_pages, reference_.NumPages(tenant));
    ASSERT_EQ(tree_.host().num_free_pages(root), reference_.NumFreePages(tenant));
    Node* unsaved = reference_.OldestUnsaved(tenant);
    ASSERT_EQ(tree_.evictions().OldestUnsaved(account), unsaved == nullptr ? kNoNode : unsaved->id);
  }
  accounts_.CheckInvariants();
}

}  // namespace quire
