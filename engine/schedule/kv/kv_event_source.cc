// The nodes that were told, beside those of the tree.
#include "engine/schedule/kv/kv_event_source.h"

#include <algorithm>
#include <utility>

#include "engine/schedule/kv/kv_nodes.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr uint8_t Bit(KvTier tier) { return static_cast<uint8_t>(1 << static_cast<int>(tier)); }

}  // namespace

KvEventSource::~KvEventSource() { nodes_.changes().SetWatcher(nullptr); }

void KvEventSource::Begin(TenantId tenant) {
  CHECK(!Tells(tenant));
  if (feeds_.empty()) nodes_.changes().SetWatcher(this);
  feeds_[tenant].number = ++last_feed_;
  next_ = 0;
  walking_ = true;
}

void KvEventSource::End(TenantId tenant) {
  CHECK_EQ(feeds_.erase(tenant), 1u);
  if (!feeds_.empty()) return;
  nodes_.changes().SetWatcher(nullptr);
  walking_ = false;
  told_ = {};
  noted_ = {};
  chain_ = {};
}

// Nodes that are added during the walk are noted by their own changes.
bool KvEventSource::Continue(int32_t count) {
  if (!walking_) return false;
  const NodeId num_nodes = nodes_.tree().num_nodes();
  const NodeId end = std::min(num_nodes, next_ + count);
  for (; next_ < end; ++next_) {
    if (nodes_.Kv(next_).anywhere()) Note(next_);
  }
  walking_ = next_ < num_nodes;
  if (walking_) return true;
  for (auto& [tenant, feed] : feeds_) feed.complete = true;
  return false;
}

void KvEventSource::Note(NodeId node) {
  if (nodes_.tree().IsTail(node) || nodes_.tree().IsRoot(node)) return;
  if (told_.size() <= static_cast<size_t>(node)) told_.resize(nodes_.tree().num_nodes());
  if (std::exchange(told_[node].noted, true)) return;
  noted_.push_back(node);
}

void KvEventSource::OnKvChange(NodeId node) { Note(node); }

// It stays noted: its id may be in use again when the events are taken.
void KvEventSource::OnForget(NodeId node) {
  if (told_.size() <= static_cast<size_t>(node)) return;
  if (told_[node].root != kNoNode) {
    if (Feed* const feed = FeedOf(node)) Tell(*feed, node, 0);
  }
  told_[node] = {.noted = told_[node].noted};
}

std::vector<KvEventSource::Change> KvEventSource::Take() {
  for (const NodeId node : noted_) {
    told_[node].noted = false;
    // The id may have become free, or that of a root or a tail.
    const NodeTree& tree = nodes_.tree();
    if (tree.InUse(node) && !tree.IsRoot(node) && !tree.IsTail(node)) TellChain(node);
  }
  noted_.clear();
  std::vector<Change> changes;
  for (auto& [tenant, feed] : feeds_) {
    const bool completes = feed.complete && !std::exchange(feed.complete_is_taken, feed.complete);
    if (feed.events.empty() && !completes) continue;
    if (std::exchange(feed.removed, false) && feed.num_told == 0) {
      feed.events.assign(1, {.kind = KvEvent::Kind::kCleared});
    }
    changes.push_back(
        {.tenant = tenant, .events = std::exchange(feed.events, {}), .complete = completes});
  }
  return changes;
}

KvEventSource::Tiers KvEventSource::Now(NodeId node) const {
  const NodeKv& kv = nodes_.Kv(node);
  Tiers tiers = 0;
  if (kv.on_device()) tiers |= Bit(KvTier::kDevice);
  if (kv.on_host() && nodes_.pages().Has(node)) tiers |= Bit(KvTier::kHost);
  return tiers;
}

KvEventSource::Tiers KvEventSource::ToldTo(const Feed& feed, NodeId node) const {
  return told_[node].feed == feed.number ? told_[node].tiers : Tiers{0};
}

// Null: the tenant has no subscribers. Requires that the node was identified.
KvEventSource::Feed* KvEventSource::FeedOf(NodeId node) {
  const NodeId root = told_[node].root;
  const auto found = feeds_.find(nodes_.tree().Key(root));
  return found == feeds_.end() ? nullptr : &found->second;
}

// Finds the root and the hash of a node, from the closest ancestor that has both.
void KvEventSource::Identify(NodeId node) {
  const NodeTree& tree = nodes_.tree();
  chain_.clear();
  NodeId above = node;
  for (; !tree.IsRoot(above) && told_[above].root == kNoNode; above = tree.Parent(above)) {
    chain_.push_back(above);
  }
  NodeId root = tree.IsRoot(above) ? above : told_[above].root;
  KvBlockHash hash = tree.IsRoot(above) ? kNoKvBlock : told_[above].hash;
  while (!chain_.empty()) {
    const NodeId id = chain_.back();
    chain_.pop_back();
    hash = HashKvBlock(hash, tree.TokensOf(id));
    told_[id].hash = hash;
    told_[id].root = root;
  }
}

// Tells of a node, and before it of the ancestors that were not told yet.
void KvEventSource::TellChain(NodeId node) {
  told_.resize(nodes_.tree().num_nodes());
  Identify(node);
  Feed* const feed = FeedOf(node);
  if (feed == nullptr) return;
  const NodeTree& tree = nodes_.tree();
  chain_.assign(1, node);
  for (NodeId id = tree.Parent(node); !tree.IsRoot(id); id = tree.Parent(id)) {
    if (ToldTo(*feed, id) != 0) break;
    chain_.push_back(id);
  }
  for (; !chain_.empty(); chain_.pop_back()) Tell(*feed, chain_.back(), Now(chain_.back()));
}

void KvEventSource::Tell(Feed& feed, NodeId node, Tiers now) {
  const Tiers before = ToldTo(feed, node);
  if (now == before) return;
  for (const KvTier tier : {KvTier::kDevice, KvTier::kHost}) {
    const bool has = (now & Bit(tier)) != 0, had = (before & Bit(tier)) != 0;
    if (has && !had) AddStored(feed, node, tier);
    if (had && !has) AddRemoved(feed, node, tier);
  }
  told_[node].feed = feed.number;
  told_[node].tiers = now;
}

// A chain that was stored in one go is one event.
void KvEventSource::AddStored(Feed& feed, NodeId node, KvTier tier) {
  ++feed.num_told;
  const NodeTree& tree = nodes_.tree();
  const NodeId parent = tree.Parent(node);
  const KvBlockHash parent_hash = tree.IsRoot(parent) ? kNoKvBlock : told_[parent].hash;
  KvEvent* event = feed.events.empty() ? nullptr : &feed.events.back();
  if (event == nullptr || event->kind != KvEvent::Kind::kStored || event->tier != tier ||
      event->blocks.back() != parent_hash) {
    event = &feed.events.emplace_back();
    event->kind = KvEvent::Kind::kStored;
    event->tier = tier;
    event->parent = parent_hash;
    event->depth = tree.Depth(node) - 1;
  }
  event->blocks.push_back(told_[node].hash);
  const std::span<const int32_t> tokens = tree.TokensOf(node);
  event->tokens.insert(event->tokens.end(), tokens.begin(), tokens.end());
}

void KvEventSource::AddRemoved(Feed& feed, NodeId node, KvTier tier) {
  --feed.num_told;
  feed.removed = true;
  KvEvent* event = feed.events.empty() ? nullptr : &feed.events.back();
  if (event == nullptr || event->kind != KvEvent::Kind::kRemoved || event->tier != tier) {
    event = &feed.events.emplace_back();
    event->kind = KvEvent::Kind::kRemoved;
    event->tier = tier;
  }
  event->blocks.push_back(told_[node].hash);
}

}  // namespace quire
