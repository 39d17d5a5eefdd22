// KvBlockSet: the blocks of a tenant that KvEvents say are there. Applying all events from the
// first gives the blocks that the tenant has; a snapshot gives back events from which another
// reader gets the same. Some 150 bytes for each block of 16 tokens. One thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/values/kv_events.h"

namespace quire {

class KvBlockSet {
 public:
  // Tokens in a batch of a snapshot, at most, unless a block has more: some 100 KiB on the wire.
  static constexpr size_t kBatchTokens = 16384;

  explicit KvBlockSet(int32_t block_size) : block_size_(block_size) {}
  void Apply(const KvEventBatch& batch);
  // All blocks as KvEventBatch::snapshot says, in batches without numbers and times. Some 50 ms for
  // 100,000 blocks.
  std::vector<KvEventBatch> Snapshot(TenantId tenant) const;

 private:
  struct Block {
    KvBlockHash parent = kNoKvBlock;
    int32_t depth = 0;
    bool on[kNumKvTiers] = {};
    std::vector<int32_t> tokens;
  };

  void Store(const KvEvent& event);
  void Remove(const KvEvent& event);

  const int32_t block_size_;
  std::unordered_map<KvBlockHash, Block> blocks_;
};

}  // namespace quire
