// BlockPool: sole owner of the KV block ids. Every block is free or referenced, block 0 is the null
// block and neither, and part of the free ones may be promised (reserved) without being chosen yet.
//
// A reservation is a promise: free >= reserved holds after every call, so turning a reserved block
// into a real one cannot fail. Nothing here allocates after construction. One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

using BlockId = int32_t;

inline constexpr BlockId kNullBlock = 0;

class BlockPool {
 public:
  // `num_blocks` includes the null block.
  explicit BlockPool(int32_t num_blocks);

  int32_t total() const { return static_cast<int32_t>(refs_.size()) - 1; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t reserved() const { return reserved_; }
  // Free and not promised to anybody.
  int32_t available() const { return num_free() - reserved_; }

  // Promises `count` blocks; false, and nothing changed, if fewer are available.
  bool Reserve(int32_t count);
  // Takes back a promise of `count` blocks.
  void Unreserve(int32_t count);
  // A block against one promised block. Requires reserved() > 0.
  BlockId TakeReserved();
  // A block that was promised to nobody. Requires available() > 0.
  BlockId Take();
  // One more holder of a referenced block.
  void Share(BlockId block);
  // One holder less; the last one frees the block.
  void Release(BlockId block);

  int32_t refs(BlockId block) const { return refs_[block]; }
  // Recounts everything; aborts on a difference. O(blocks).
  void CheckIntegrity() const;

 private:
  BlockId Pop();

  std::vector<int32_t> refs_;  // by block id; the null block's stays 0
  std::vector<BlockId> free_;  // a stack: what was freed last is written next
  int32_t reserved_ = 0;
};

}  // namespace quire
