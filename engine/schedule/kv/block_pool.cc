// Counts, a state per block, and a stack of free ids.
#include "engine/schedule/kv/block_pool.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

BlockPool::BlockPool(int32_t num_blocks) : states_(num_blocks, BlockState::kFree) {
  CHECK_GE(num_blocks, 2);
  states_[kNullBlock] = BlockState::kNull;
  free_.reserve(num_blocks - 1);
  for (BlockId block = num_blocks - 1; block > kNullBlock; --block) free_.push_back(block);
}

bool BlockPool::Reserve(int32_t count) {
  CHECK_GE(count, 0);
  if (available() < count) return false;
  reserved_ += count;
  return true;
}

void BlockPool::Unreserve(int32_t count) {
  CHECK(count >= 0 && count <= reserved_);
  reserved_ -= count;
}

BlockId BlockPool::TakeReserved() {
  CHECK_GT(reserved_, 0);
  --reserved_;
  return Pop();
}

BlockId BlockPool::Take() {
  CHECK_GT(available(), 0);
  return Pop();
}

BlockId BlockPool::Pop() {
  BlockId block = kNullBlock;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = reclaimer_->Reclaim();
    CHECK(states_[block] == BlockState::kCached);
    --num_cached_;
  }
  states_[block] = BlockState::kTaken;
  return block;
}

void BlockPool::Release(BlockId block) {
  CHECK(block > kNullBlock && block <= total());
  CHECK(states_[block] != BlockState::kFree);
  num_cached_ -= states_[block] == BlockState::kCached;
  states_[block] = BlockState::kFree;
  free_.push_back(block);
}

void BlockPool::Cache(BlockId block) {
  CHECK(states_[block] == BlockState::kTaken);
  states_[block] = BlockState::kCached;
  ++num_cached_;
}

void BlockPool::Uncache(BlockId block) {
  CHECK(states_[block] == BlockState::kCached);
  CHECK_GT(available(), 0);
  states_[block] = BlockState::kTaken;
  --num_cached_;
}

void BlockPool::CheckIntegrity() const {
  CHECK(reserved_ >= 0 && available() >= 0);
  CHECK(states_[kNullBlock] == BlockState::kNull);
  CHECK_EQ(std::count(states_.begin(), states_.end(), BlockState::kCached), num_cached_);
  CHECK_EQ(std::count(states_.begin(), states_.end(), BlockState::kFree), num_free());
  std::vector<bool> is_free(states_.size(), false);
  for (const BlockId block : free_) {
    CHECK(states_[block] == BlockState::kFree);
    CHECK(!is_free[block]);
    is_free[block] = true;
  }
}

}  // namespace quire
