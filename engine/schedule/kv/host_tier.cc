// Copies begin and end; a lost page takes the pages below with it.
#include "engine/schedule/kv/host_tier.h"

#include <algorithm>

#include "engine/schedule/kv/kv_nodes.h"
#include "kernels/check.h"

namespace quire {

int32_t HostTier::num_pages() const { return nodes_.pages().num_pages(); }

int32_t HostTier::num_free_pages() const {
  return nodes_.pages().num_free() + nodes_.order().num_spare_pages();
}

int32_t HostTier::num_free_pages(NodeId node) const {
  return std::clamp(RoomInShare(node), 0, num_free_pages());
}

int32_t HostTier::RoomInShare(NodeId node) const {
  const AccountId account = nodes_.tree().AccountOf(node);
  const int64_t room = nodes_.shares().Left(account) + nodes_.order().num_spare_pages(account);
  return static_cast<int32_t>(std::min(room, HostShares::kUnbounded));
}

void HostTier::GiveBackExcess() {
  const EvictionOrder& order = nodes_.order();
  for (AccountId account = 0; account < order.num_accounts(); ++account) {
    while (order.num_spare_pages(account) > 0 && nodes_.shares().Left(account) < 0) {
      nodes_.LosePage(order.OldestSparePage(account));
    }
  }
}

int32_t HostTier::num_used_pages() const { return num_ready_pages() - num_free_pages(); }

int32_t HostTier::num_ready_pages() const { return nodes_.pages().num_ready(); }

void HostTier::Withhold() { nodes_.SetReadyPages(0); }

void HostTier::Provide(int32_t count) {
  if (count > num_ready_pages()) nodes_.SetReadyPages(std::min(count, num_pages()));
}

// Whether a child of `parent` can be given a page.
bool HostTier::CanTakePage(NodeId parent) const {
  return num_free_pages(parent) > 0 && (nodes_.tree().IsRoot(parent) || nodes_.pages().Has(parent));
}

PageId HostTier::BeginStore(NodeId node) {
  CHECK(nodes_.Held(node) && nodes_.Kv(node).on_device() && nodes_.Kv(node).page == kNoPage);
  if (!CanTakePage(nodes_.tree().Parent(node))) return kNoPage;
  nodes_.TakePage(node);
  return nodes_.Kv(node).page;
}

void HostTier::EndStore(NodeId node, bool ok) {
  CHECK(nodes_.Held(node) && nodes_.Kv(node).storing);
  if (nodes_.EndCopy(node) && !ok) LosePages(node);
}

void HostTier::BeginLoad(NodeId node, BlockId block) {
  CHECK(nodes_.Held(node) && nodes_.Kv(node).on_host());
  nodes_.SetBlock(node, block, /*loading=*/true);
}

void HostTier::EndLoad(NodeId node, bool ok, bool page_bad) {
  CHECK(nodes_.Held(node) && nodes_.Kv(node).loading);
  const bool has_page = nodes_.EndCopy(node);
  if (!ok) nodes_.FreeBlock(node);
  if (has_page && page_bad) LosePages(node);
}

InsertedNode HostTier::InsertOnHost(NodeId parent, std::span<const int32_t> tokens, bool tail) {
  CHECK(nodes_.Held(parent) && !nodes_.tree().IsTail(parent));
  NodeId id = tail ? kNoNode : nodes_.tree().Child(parent, tokens);
  const bool has_page = id != kNoNode && nodes_.Kv(id).page != kNoPage;
  if (!has_page && !CanTakePage(parent)) return {};
  if (id != kNoNode && nodes_.HoldCost(id) > pool_.available()) return {};
  if (id == kNoNode) {
    id = tail ? nodes_.AddTail(parent, static_cast<int32_t>(tokens.size()))
              : nodes_.AddChild(parent, tokens);
  }
  nodes_.Hold(id);
  if (!has_page) nodes_.TakePage(id);
  return {id, !has_page};
}

PageId HostTier::BeginRead(NodeId node) {
  CHECK(nodes_.Kv(node).on_host());
  return nodes_.BeginRead(node);
}

void HostTier::EndRead(NodeId node, PageId page) { nodes_.EndRead(node, page); }

bool HostTier::DropBlock(NodeId node) {
  if (nodes_.Held(node) || nodes_.Kv(node).block == kNullBlock || !nodes_.pages().Has(node)) {
    return false;
  }
  nodes_.FreeBlock(node);
  nodes_.keepers().ReportTierLost(node);
  return true;
}

bool HostTier::DropPage(NodeId node) {
  const NodePages& pages = nodes_.pages();
  if (nodes_.Held(node) || !pages.Has(node) || pages.HasBelow(node)) return false;
  if (pages.Reading(nodes_.Kv(node).page)) return false;
  nodes_.LosePage(node);
  return true;
}

void HostTier::LosePages(NodeId top) {
  const NodeTree& tree = nodes_.tree();
  for (NodeId id = tree.FirstLeaf(top), next; id != kNoNode; id = next) {
    next = tree.NextInPostOrder(id, top);
    if (nodes_.pages().Has(id)) nodes_.LosePage(id);
  }
}

}  // namespace quire
