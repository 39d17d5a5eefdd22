// Events applied to a map by hash, and read back in the order of depth.
#include "engine/kv_block_set.h"

#include <algorithm>
#include <utility>

namespace quire {

void KvBlockSet::Apply(const KvEventBatch& batch) {
  for (const KvEvent& event : batch.events) {
    switch (event.kind) {
      case KvEvent::Kind::kStored: Store(event); break;
      case KvEvent::Kind::kRemoved: Remove(event); break;
      case KvEvent::Kind::kCleared: blocks_.clear(); break;
    }
  }
}

void KvBlockSet::Store(const KvEvent& event) {
  KvBlockHash parent = event.parent;
  int32_t depth = event.depth;
  auto tokens = event.tokens.begin();
  for (const KvBlockHash hash : event.blocks) {
    Block& block = blocks_[hash];
    block.on[static_cast<int>(event.tier)] = true;
    block.parent = std::exchange(parent, hash);
    block.depth = depth++;
    block.tokens.assign(tokens, tokens + block_size_);
    tokens += block_size_;
  }
}

void KvBlockSet::Remove(const KvEvent& event) {
  for (const KvBlockHash hash : event.blocks) {
    const auto found = blocks_.find(hash);
    if (found == blocks_.end()) continue;
    found->second.on[static_cast<int>(event.tier)] = false;
    if (std::ranges::count(found->second.on, true) == 0) blocks_.erase(found);
  }
}

std::vector<KvEventBatch> KvBlockSet::Snapshot(TenantId tenant) const {
  std::vector<const std::pair<const KvBlockHash, Block>*> order;
  order.reserve(blocks_.size());
  for (const auto& entry : blocks_) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const auto* entry) { return entry->second.depth; });

  std::vector<KvEventBatch> batches(1);
  batches.back().events.push_back({.kind = KvEvent::Kind::kCleared});
  size_t num_tokens = 0;
  for (const auto* entry : order) {
    const Block& block = entry->second;
    for (const KvTier tier : {KvTier::kDevice, KvTier::kHost}) {
      if (!block.on[static_cast<int>(tier)]) continue;
      if (num_tokens > 0 && num_tokens + block.tokens.size() > kBatchTokens) {
        batches.emplace_back();
        num_tokens = 0;
      }
      num_tokens += block.tokens.size();
      batches.back().events.push_back({.kind = KvEvent::Kind::kStored,
                                       .tier = tier,
                                       .blocks = {entry->first},
                                       .parent = block.parent,
                                       .depth = block.depth,
                                       .tokens = block.tokens});
    }
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].tenant = tenant;
    batches[i].block_size = block_size_;
    batches[i].snapshot = {.index = static_cast<int32_t>(i),
                           .count = static_cast<int32_t>(batches.size())};
  }
  return batches;
}

}  // namespace quire
