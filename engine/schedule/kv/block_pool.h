// BlockPool: sole owner of the KV block ids. Every block is free, taken by exactly one owner, or
// cached: it still holds KV that the prefix tree remembers, but nobody relies on it and it can be
// had at any time. Block 0 is the null block and none of these.
//
// Part of what can be had may be promised (reserved) without being chosen yet. A reservation is a
// promise: free + cached >= reserved holds after every call, so turning a reserved block into a
// real one cannot fail. Nothing here allocates after construction. One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

using BlockId = int32_t;

inline constexpr BlockId kNullBlock = 0;

// Gives cached blocks up.
class BlockReclaimer {
 public:
  virtual ~BlockReclaimer() = default;
  // Forgets what the cached block least worth keeping holds, and returns it. Requires that there is
  // one. Must not call the pool.
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
  // To be had, and not promised to anybody.
  int32_t available() const { return num_free() + num_cached_ - reserved_; }
  BlockState state(BlockId block) const { return states_[block]; }

  // Promises `count` blocks; false, and nothing changed, if fewer are available.
  bool Reserve(int32_t count);
  // Takes back a promise of `count` blocks.
  void Unreserve(int32_t count);
  // A block against one promised block: a free one, else the reclaimer's. Requires reserved() > 0.
  BlockId TakeReserved();
  // A block that was promised to nobody. Requires available() > 0.
  BlockId Take();
  // A taken or cached block becomes free.
  void Release(BlockId block);

  // The prefix tree's: a taken block becomes cached,
  void Cache(BlockId block);
  // and a cached one is taken again, which others cannot have then. Requires available() > 0.
  void Uncache(BlockId block);

  // Recounts everything; aborts on a difference. O(blocks).
  void CheckIntegrity() const;

 private:
  BlockId Pop();

  std::vector<BlockState> states_;  // by block id
  std::vector<BlockId> free_;       // a stack: what was freed last is written next
  int32_t num_cached_ = 0;
  int32_t reserved_ = 0;
  BlockReclaimer* reclaimer_ = nullptr;
};

}  // namespace quire
