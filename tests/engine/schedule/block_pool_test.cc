// BlockPool: counts, reservations, cached blocks, and the null block.
#include "engine/schedule/kv/block_pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>
#include <vector>

namespace quire {
namespace {

// Evicts cached blocks in the order in which they were cached.
class OldestFirst final : public BlockReclaimer {
 public:
  BlockId Reclaim() override {
    const BlockId block = cached.front();
    cached.pop_front();
    return block;
  }
  std::deque<BlockId> cached;
};

TEST(BlockPoolTest, HandsOutEveryBlockOnceAndNeverTheNullBlock) {
  BlockPool pool(6);
  EXPECT_EQ(pool.total(), 5);
  std::set<BlockId> taken;
  while (pool.available() > 0) taken.insert(pool.Take());
  EXPECT_EQ(taken, (std::set<BlockId>{1, 2, 3, 4, 5}));
  EXPECT_EQ(pool.num_free(), 0);
  pool.CheckIntegrity();
}

TEST(BlockPoolTest, ReservesAllOrNothing) {
  BlockPool pool(6);
  EXPECT_FALSE(pool.Reserve(6));
  EXPECT_EQ(pool.reserved(), 0);
  EXPECT_EQ(pool.available(), 5);
  EXPECT_TRUE(pool.Reserve(3));
  EXPECT_FALSE(pool.Reserve(3));
  EXPECT_EQ(pool.reserved(), 3);
  EXPECT_EQ(pool.available(), 2);
  pool.Unreserve(1);
  EXPECT_TRUE(pool.Reserve(3));
}

TEST(BlockPoolTest, TakeNeverReturnsReservedBlocks) {
  BlockPool pool(6);
  ASSERT_TRUE(pool.Reserve(2));
  while (pool.available() > 0) pool.Take();
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_NE(pool.TakeReserved(), kNullBlock);
  EXPECT_NE(pool.TakeReserved(), kNullBlock);
  EXPECT_EQ(pool.reserved(), 0);
  pool.CheckIntegrity();
}

TEST(BlockPoolTest, TakesCachedBlocksWhenNoneIsFree) {
  BlockPool pool(4);
  OldestFirst reclaimer;
  pool.SetReclaimer(&reclaimer);
  const BlockId first = pool.Take();
  const BlockId second = pool.Take();
  for (const BlockId block : {second, first}) {
    pool.Cache(block);
    reclaimer.cached.push_back(block);
  }
  EXPECT_EQ(pool.num_cached(), 2);
  EXPECT_EQ(pool.available(), 3);
  const BlockId free = pool.Take();
  EXPECT_TRUE(free != first && free != second);
  ASSERT_TRUE(pool.Reserve(1));
  EXPECT_EQ(pool.TakeReserved(), second);
  EXPECT_EQ(pool.Take(), first);
  EXPECT_EQ(pool.num_cached(), 0);
  EXPECT_EQ(pool.available(), 0);
  pool.CheckIntegrity();
}

TEST(BlockPoolTest, ReservesCachedBlocks) {
  BlockPool pool(3);
  const BlockId block = pool.Take();
  pool.Cache(block);
  EXPECT_TRUE(pool.Reserve(2));
  EXPECT_FALSE(pool.Reserve(1));
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.available(), 0);
  pool.CheckIntegrity();
}

TEST(BlockPoolDeathTest, AbortsOnWrongOwnership) {
  BlockPool pool(3);
  const BlockId block = pool.Take();
  EXPECT_DEATH(pool.Uncache(block), "CHECK failed");
  pool.Release(block);
  EXPECT_DEATH(pool.Release(block), "CHECK failed");
  EXPECT_DEATH(pool.Cache(block), "CHECK failed");
  EXPECT_DEATH(pool.Uncache(block), "CHECK failed");
  EXPECT_DEATH(pool.Release(kNullBlock), "CHECK failed");
  EXPECT_DEATH(pool.Cache(kNullBlock), "CHECK failed");
  EXPECT_DEATH(pool.Release(3), "CHECK failed");
  EXPECT_DEATH(pool.TakeReserved(), "CHECK failed");
  EXPECT_DEATH(pool.Unreserve(1), "CHECK failed");
}

TEST(BlockPoolDeathTest, AbortsWhenUncacheBreaksAReservation) {
  BlockPool pool(2);
  const BlockId block = pool.Take();
  pool.Cache(block);
  ASSERT_TRUE(pool.Reserve(1));
  EXPECT_DEATH(pool.Uncache(block), "CHECK failed");
}

// Against two sets: every count is right after every call.
TEST(BlockPoolTest, AgreesWithSetsOverRandomCalls) {
  std::mt19937 random(20240611);
  BlockPool pool(12);
  OldestFirst reclaimer;
  pool.SetReclaimer(&reclaimer);
  std::set<BlockId> taken;
  std::deque<BlockId>& cached = reclaimer.cached;
  int32_t reserved = 0;
  const auto any_taken = [&] { return *std::next(taken.begin(), random() % taken.size()); };
  for (int i = 0; i < 50000; ++i) {
    const int32_t num_free = pool.total() - static_cast<int32_t>(taken.size() + cached.size());
    const int32_t available = pool.total() - static_cast<int32_t>(taken.size()) - reserved;
    const BlockId oldest = cached.empty() ? kNullBlock : cached.front();
    const uint32_t dice = random() % 8;
    if (dice == 0) {
      const int32_t count = static_cast<int32_t>(random() % 6);
      const bool can = count <= available;
      ASSERT_EQ(pool.Reserve(count), can);
      reserved += can ? count : 0;
    } else if ((dice == 1 && reserved > 0) || (dice == 2 && available > 0)) {
      const BlockId block = dice == 1 ? pool.TakeReserved() : pool.Take();
      ASSERT_TRUE(taken.insert(block).second);
      ASSERT_TRUE(num_free > 0 || block == oldest);
      reserved -= dice == 1;
    } else if (dice == 3 && !taken.empty()) {
      const BlockId block = any_taken();
      pool.Release(block);
      taken.erase(block);
    } else if (dice == 4 && !taken.empty()) {
      const BlockId block = any_taken();
      pool.Cache(block);
      taken.erase(block);
      cached.push_back(block);
    } else if (dice == 5 && !cached.empty() && available > 0) {
      pool.Uncache(oldest);
      cached.pop_front();
      taken.insert(oldest);
    } else if (dice == 6 && !cached.empty()) {
      pool.Release(oldest);
      cached.pop_front();
    } else if (dice == 7 && reserved > 0) {
      pool.Unreserve(1);
      --reserved;
    }
    pool.CheckIntegrity();
    ASSERT_EQ(pool.num_cached(), static_cast<int32_t>(cached.size()));
    ASSERT_EQ(pool.available(), pool.total() - static_cast<int32_t>(taken.size()) - reserved);
    for (const BlockId block : taken) ASSERT_EQ(pool.state(block), BlockState::kTaken);
    for (const BlockId block : cached) ASSERT_EQ(pool.state(block), BlockState::kCached);
  }
}

}  // namespace
}  // namespace quire
