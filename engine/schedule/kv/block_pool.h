// BlockPool: the only owner of the KV block ids. Every block is free, taken by exactly one owner,
// or cached: the prefix tree still finds its KV, but no sequence or copy holds it, and it can be
// evicted at any time. Block 0 is the null block, which has no state.
//
// Free and cached blocks can be reserved before they are chosen. A reservation is a promise:
// free + cached >= reserved holds after every call, so TakeReserved cannot fail. Nothing here
// allocates after construction. One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

using BlockId = int32_t;

inline constexpr BlockId kNullBlock = 0;

// Chooses the cached block to be evicted.
class BlockReclaimer {
 public:
  virtual ~BlockReclaimer() = default;
  // Forgets the KV of the cached block least worth keeping, and returns the block. Requires that
  // there is one. Must not call the pool.
  virtual BlockId Reclaim() = 0;
};

enum class BlockState : uint8_t { kNull, kFree, kTaken, kCached };

class BlockPool {
 public:
  // `num_blocks` includes the null block.
  explicit BlockPool(int32_t num_blocks);
  // Set before the first block is cached; outlives the last call.
  void SetReclaimer(BlockReclaimer* reclaimer) { reclaimer_ = reclaimer; }

  int32_t total() const { return static_cast<int32_t>(states_.size()) - 1; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_cached() const { return num_cached_; }
  int32_t reserved() const { return reserved_; }
  // Free and cached blocks that are not reserved.
  int32_t available() const { return num_free() + num_cached_ - reserved_; }
  BlockState state(BlockId block) const { return states_[block]; }

  // Reserves `count` blocks; false, and nothing done, if fewer are available.
  bool Reserve(int32_t count);
  // Gives back a reservation of `count` blocks.
  void Unreserve(int32_t count);
  // Turns one reserved block into a real one: a free one, else one from the reclaimer. Requires
  // reserved() > 0.
  BlockId TakeReserved();
  // Takes a block that is not reserved. Requires available() > 0.
  BlockId Take();
  // A taken or cached block becomes free.
  void Release(BlockId block);

  // For the prefix tree: a taken block becomes cached, and a cached one is taken again. Uncache
  // requires available() > 0.
  void Cache(BlockId block);
  void Uncache(BlockId block);

  // Recounts everything; aborts on a difference. O(blocks).
  void CheckIntegrity() const;

 private:
  BlockId Pop();

  std::vector<BlockState> states_;  // by block id
  std::vector<BlockId> free_;       // a stack: the block freed last is used next
  int32_t num_cached_ = 0;
  int32_t reserved_ = 0;
  BlockReclaimer* reclaimer_ = nullptr;
};

}  // namespace quire
