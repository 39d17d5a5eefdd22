// Answers every question by looking at all nodes.
#include "tests/engine/schedule/reference_tree.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

using Node = ReferenceTree::Node;

namespace {

bool IsBelow(const Node* node, const Node* top) {
  while (node != nullptr && node != top) node = node->parent;
  return node == top;
}

}  // namespace

Node* ReferenceTree::Find(TenantId tenant, const std::vector<int32_t>& tokens) {
  Node* node = &roots_[tenant];
  for (size_t at = 0; at + block_size_ <= tokens.size(); at += block_size_) {
    Node* child = Child(node, {tokens.begin() + at, tokens.begin() + at + block_size_});
    if (child == nullptr || !child->has_kv()) break;
    node = child;
  }
  return node;
}

Node* ReferenceTree::Child(Node* parent, const std::vector<int32_t>& tokens) {
  for (Node* child : Children(parent)) {
    if (!child->tail && child->tokens == tokens) return child;
  }
  return nullptr;
}

std::vector<Node*> ReferenceTree::All() {
  std::vector<Node*> all;
  for (Node& node : nodes_) all.push_back(&node);
  return all;
}

std::vector<Node*> ReferenceTree::Chain(Node* node) {
  std::vector<Node*> chain;
  for (; node->parent != nullptr; node = node->parent) chain.push_back(node);
  return chain;
}

std::vector<Node*> ReferenceTree::Children(Node* node) {
  std::vector<Node*> children;
  for (Node& each : nodes_) {
    if (each.parent == node) children.push_back(&each);
  }
  return children;
}

std::vector<Node*> ReferenceTree::Below(Node* top) {
  std::vector<Node*> below;
  for (Node* child : Children(top)) {
    for (Node* each : Below(child)) below.push_back(each);
  }
  below.push_back(top);
  return below;
}

bool ReferenceTree::Held(Node* node) {
  return node->holders > 0 || std::ranges::any_of(nodes_, [&](const Node& each) {
           return each.holders > 0 && IsBelow(&each, node);
         });
}

bool ReferenceTree::Kept(Node* node) {
  return std::ranges::any_of(
      nodes_, [&](const Node& each) { return !each.keepers.empty() && IsBelow(&each, node); });
}

int32_t ReferenceTree::Depth(Node* node) { return static_cast<int32_t>(Chain(node).size()); }

int32_t ReferenceTree::NumTokens(Node* node) {
  int32_t count = 0;
  for (Node* each : Chain(node)) count += static_cast<int32_t>(each->tokens.size());
  return count;
}

int32_t ReferenceTree::HoldCost(Node* node) {
  int32_t cost = 0;
  for (Node* each : Chain(node)) cost += each->has_block() && !Held(each);
  return cost;
}

int32_t ReferenceTree::NumBlocks() {
  return static_cast<int32_t>(
      std::ranges::count_if(nodes_, [](const Node& node) { return node.has_block(); }));
}

int32_t ReferenceTree::NumEvictable() {
  return static_cast<int32_t>(
      std::ranges::count_if(nodes_, [&](Node& node) { return node.has_block() && !Held(&node); }));
}

int32_t ReferenceTree::NumLossless() {
  int32_t count = 0;
  for (Node& node : nodes_) {
    count += node.has_block() && !Held(&node) && (!Kept(&node) || node.has_page());
  }
  return count;
}

int32_t ReferenceTree::NumFreePages() {
  int32_t count = num_pages_;
  for (Node& node : nodes_) {
    count -= node.kv.page != kNoPage && (Held(&node) || Kept(&node));
  }
  return count;
}

int32_t ReferenceTree::NumPages(TenantId tenant) {
  return static_cast<int32_t>(std::ranges::count_if(
      nodes_, [&](Node& node) { return node.kv.page != kNoPage && TenantOf(&node) == tenant; }));
}

int32_t ReferenceTree::NumFreePages(TenantId tenant) {
  if (!bounds_.contains(tenant)) return NumFreePages();
  int32_t wanted = 0;
  for (Node& node : nodes_) {
    wanted += node.kv.page != kNoPage && TenantOf(&node) == tenant && (Held(&node) || Kept(&node));
  }
  return std::max(0, std::min(NumFreePages(), bounds_[tenant] - wanted));
}

bool ReferenceTree::AtBound(TenantId tenant) {
  return bounds_.contains(tenant) && NumPages(tenant) >= bounds_[tenant];
}

void ReferenceTree::SetBound(TenantId tenant, int32_t pages) {
  bounds_[tenant] = pages;
  while (NumPages(tenant) > pages && SparePage(tenant) != nullptr) LosePage(SparePage(tenant));
}

bool ReferenceTree::PageToHave(Node* parent) {
  return NumFreePages(TenantOf(parent)) > 0 && (parent->parent == nullptr || parent->has_page());
}

Node* ReferenceTree::Victim() {
  Node* victim = nullptr;
  for (Node& node : nodes_) {
    if (!node.has_block() || Held(&node) || (Kept(&node) && !node.has_page())) continue;
    if (victim == nullptr || node.used < victim->used) victim = &node;
  }
  return victim != nullptr ? victim : OldestUnsaved();
}

Node* ReferenceTree::OldestUnsaved() {
  Node* oldest = nullptr;
  for (Node& node : nodes_) {
    if (!node.has_block() || Held(&node) || !Kept(&node) || node.has_page()) continue;
    if (oldest == nullptr || node.used < oldest->used) oldest = &node;
  }
  return oldest;
}

Node* ReferenceTree::OldestUnsaved(TenantId tenant) {
  Node* oldest = nullptr;
  for (Node& node : nodes_) {
    if (!node.has_block() || Held(&node) || !Kept(&node) || node.has_page()) continue;
    if (TenantOf(&node) != tenant) continue;
    if (oldest == nullptr || node.used < oldest->used) oldest = &node;
  }
  return oldest;
}

Node* ReferenceTree::SparePage() {
  Node* oldest = nullptr;
  for (Node& node : nodes_) {
    if (!node.has_page() || Held(&node) || Kept(&node)) continue;
    if (oldest == nullptr || node.used < oldest->used) oldest = &node;
  }
  return oldest;
}

Node* ReferenceTree::SparePage(TenantId tenant) {
  Node* oldest = nullptr;
  for (Node& node : nodes_) {
    if (!node.has_page() || Held(&node) || Kept(&node) || TenantOf(&node) != tenant) continue;
    if (oldest == nullptr || node.used < oldest->used) oldest = &node;
  }
  return oldest;
}

void ReferenceTree::Release(Node* node) {
  CHECK_GT(node->holders, 0);
  --node->holders;
  while (node != nullptr && !Held(node)) {
    Node* parent = node->parent;
    if (parent != nullptr && !node->has_kv()) {
      for (Node* each : Below(node)) Forget(each);
    } else {
      Use(node);
    }
    node = parent;
  }
}

void ReferenceTree::Keep(Node* node, uint64_t keeper) {
  CHECK(node->keepers.insert(keeper).second);
  for (Node* each : Chain(node)) {
    if (!Held(each)) Use(each);
  }
}

void ReferenceTree::Unkeep(Node* node, uint64_t keeper) {
  CHECK_EQ(node->keepers.erase(keeper), 1u);
  for (Node* each : Chain(node)) {
    if (!Kept(each) && !Held(each)) Use(each);
  }
}

Node* ReferenceTree::Add(Node* parent, const std::vector<int32_t>& tokens, bool tail) {
  Node& node = nodes_.emplace_back();
  node.parent = parent;
  node.tokens = tokens;
  node.tail = tail;
  return &node;
}

// A forgotten node has no children: the eviction order takes them first.
void ReferenceTree::Forget(Node* node) {
  CHECK(Children(node).empty() && node->holders == 0);
  if (node->parent->parent != nullptr) node->parent->keepers.merge(node->keepers);
  nodes_.remove_if([&](const Node& each) { return &each == node; });
}

void ReferenceTree::Evict() {
  Node* victim = Victim();
  victim->kv.block = kNullBlock;
  if (!victim->has_kv()) Forget(victim);
}

void ReferenceTree::GivePage(Node* node, PageId page) {
  const TenantId tenant = TenantOf(node);
  while (AtBound(tenant)) LosePage(SparePage(tenant));
  std::set<PageId> used;
  for (Node& each : nodes_) used.insert(each.kv.page);
  used.erase(kNoPage);
  if (static_cast<int32_t>(used.size()) == num_pages_) {
    Node* spare = SparePage();
    used.erase(spare->kv.page);
    LosePage(spare);
  }
  CHECK(page >= 0 && page < num_pages_ && !used.contains(page));
  node->kv.page = page;
}

// Frees a doomed page, which stayed until its copy ended.
void ReferenceTree::EndCopy(Node* node) {
  node->kv.loading = node->kv.storing = false;
  if (!node->doomed) return;
  node->doomed = false;
  node->kv.page = kNoPage;
}

void ReferenceTree::LosePage(Node* node) {
  for (Node* child : Children(node)) CHECK(!child->has_page());
  if (node->copying()) {
    node->doomed = true;
    return;
  }
  node->kv.page = kNoPage;
  if (Held(node)) return;
  if (!node->has_block()) {
    for (Node* each : Below(node)) Forget(each);
  } else if (Kept(node)) {
    Use(node);
  }
}

void ReferenceTree::LosePages(Node* top) {
  for (Node* node : Below(top)) {
    if (node->has_page()) LosePage(node);
  }
}

void ReferenceTree::TakeTail(Node* tail) {
  Node* parent = tail->parent;
  tail->holders = 0;
  Forget(tail);
  ++parent->holders;  // released with the tail
  Release(parent);
}

void ReferenceTree::ForgetDevice() {
  for (auto& [tenant, root] : roots_) {
    for (Node* node : Below(&root)) {
      const bool had_block = node->has_block();
      node->kv.block = kNullBlock;
      if (had_block && !node->has_kv() && !Held(node)) Forget(node);
    }
  }
}

void ReferenceTree::Flush(bool sessions) {
  for (auto& [tenant, root] : roots_) {
    for (Node* node : Below(&root)) {
      if (node != &root && !Held(node) && (sessions || !Kept(node))) Forget(node);
    }
  }
}

TenantId ReferenceTree::TenantOf(Node* node) {
  while (node->parent != nullptr) node = node->parent;
  return std::ranges::find_if(roots_, [&](const auto& each) { return &each.second == node; })
      ->first;
}

}  // namespace quire
