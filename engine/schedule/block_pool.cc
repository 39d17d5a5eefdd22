// Counts, and a stack of free ids.
#include "engine/schedule/block_pool.h"

#include "kernels/check.h"

namespace quire {

BlockPool::BlockPool(int32_t num_blocks) : refs_(num_blocks, 0) {
  CHECK_GE(num_blocks, 2);
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
  const BlockId block = free_.back();
  free_.pop_back();
  refs_[block] = 1;
  return block;
}

void BlockPool::Share(BlockId block) {
  CHECK(block > kNullBlock && block <= total());
  CHECK_GT(refs_[block], 0);
  ++refs_[block];
}

void BlockPool::Release(BlockId block) {
  CHECK(block > kNullBlock && block <= total());
  CHECK_GT(refs_[block], 0);
  if (--refs_[block] == 0) free_.push_back(block);
}

void BlockPool::CheckIntegrity() const {
  CHECK(reserved_ >= 0 && reserved_ <= num_free());
  CHECK_EQ(refs_[kNullBlock], 0);
  std::vector<bool> is_free(refs_.size(), false);
  for (const BlockId block : free_) {
    CHECK(block > kNullBlock && block <= total());
    CHECK(!is_free[block]);
    is_free[block] = true;
  }
  for (BlockId block = kNullBlock + 1; block <= total(); ++block) {
    CHECK_EQ(is_free[block], refs_[block] == 0);
  }
}

}  // namespace quire
