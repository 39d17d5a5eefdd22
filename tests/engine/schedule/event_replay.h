// EventReplay: the blocks that a reader of KvEvents believes to be there. Refuses, as a test
// failure, events that a careful reader could not apply.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/values/kv_events.h"

namespace quire {

struct ReplayedBlock {
  KvBlockHash parent = kNoKvBlock;
  int32_t depth = 0;
  std::vector<int32_t> tokens;
  std::array<bool, kNumKvTiers> on{};
  bool operator==(const ReplayedBlock&) const = default;
};

class EventReplay {
 public:
  using Blocks = std::map<KvBlockHash, ReplayedBlock>;

  void Apply(const std::vector<KvEvent>& events, int32_t block_size) {
    for (const KvEvent& event : events) {
      if (event.kind == KvEvent::Kind::kCleared) {
        blocks_.clear();
      } else if (event.kind == KvEvent::Kind::kStored) {
        Store(event, static_cast<size_t>(block_size));
      } else {
        Remove(event);
      }
    }
  }
  const Blocks& blocks() const { return blocks_; }

 private:
  void Store(const KvEvent& event, size_t block_size) {
    ASSERT_FALSE(event.blocks.empty());
    ASSERT_EQ(event.tokens.size(), event.blocks.size() * block_size);
    KvBlockHash parent = event.parent;
    for (size_t i = 0; i < event.blocks.size(); ++i) {
      const auto tokens = std::span(event.tokens).subspan(i * block_size, block_size);
      const KvBlockHash hash = event.blocks[i];
      ASSERT_EQ(hash, HashKvBlock(parent, tokens));
      ReplayedBlock& block = blocks_[hash];
      ASSERT_FALSE(block.on[static_cast<int>(event.tier)]) << "stored twice";
      block.on[static_cast<int>(event.tier)] = true;
      block.parent = parent;
      block.depth = event.depth + static_cast<int32_t>(i);
      block.tokens.assign(tokens.begin(), tokens.end());
      parent = hash;
    }
  }
  void Remove(const KvEvent& event) {
    ASSERT_FALSE(event.blocks.empty());
    for (const KvBlockHash hash : event.blocks) {
      const auto found = blocks_.find(hash);
      ASSERT_TRUE(found != blocks_.end() && found->second.on[static_cast<int>(event.tier)])
          << "removed and not there";
      found->second.on[static_cast<int>(event.tier)] = false;
      if (found->second.on == std::array<bool, kNumKvTiers>{}) blocks_.erase(found);
    }
  }

  Blocks blocks_;
};

}  // namespace quire
