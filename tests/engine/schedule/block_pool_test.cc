// BlockPool: counts, promises, and the null block.
#include "engine/schedule/block_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace quire {
namespace {

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

TEST(BlockPoolTest, KeepsItsPromisesWhateverElseIsTaken) {
  BlockPool pool(6);
  ASSERT_TRUE(pool.Reserve(2));
  while (pool.available() > 0) pool.Take();
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_NE(pool.TakeReserved(), kNullBlock);
  EXPECT_NE(pool.TakeReserved(), kNullBlock);
  EXPECT_EQ(pool.reserved(), 0);
  pool.CheckIntegrity();
}

TEST(BlockPoolTest, FreesASharedBlockWithItsLastHolder) {
  BlockPool pool(3);
  const BlockId block = pool.Take();
  pool.Share(block);
  EXPECT_EQ(pool.refs(block), 2);
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 1);
  pool.CheckIntegrity();
  pool.Release(block);
  EXPECT_EQ(pool.num_free(), 2);
  pool.CheckIntegrity();
}

TEST(BlockPoolDeathTest, AbortsOnWrongOwnership) {
  BlockPool pool(3);
  const BlockId block = pool.Take();
  pool.Release(block);
  EXPECT_DEATH(pool.Release(block), "CHECK failed");
  EXPECT_DEATH(pool.Share(block), "CHECK failed");
  EXPECT_DEATH(pool.Release(kNullBlock), "CHECK failed");
  EXPECT_DEATH(pool.Release(3), "CHECK failed");
  EXPECT_DEATH(pool.TakeReserved(), "CHECK failed");
  EXPECT_DEATH(pool.Unreserve(1), "CHECK failed");
}

// Against a map of holders: every count is right after every call.
TEST(BlockPoolTest, AgreesWithACountOfHoldersOverRandomCalls) {
  std::mt19937 random(20240611);
  BlockPool pool(12);
  std::map<BlockId, int32_t> holders;
  int32_t reserved = 0;
  const auto any_held = [&] {
    return std::next(holders.begin(), random() % holders.size())->first;
  };
  for (int i = 0; i < 20000; ++i) {
    const int32_t available = pool.total() - static_cast<int32_t>(holders.size()) - reserved;
    switch (random() % 6) {
      case 0: {
        const int32_t count = static_cast<int32_t>(random() % 6);
        const bool can = count <= available;
        ASSERT_EQ(pool.Reserve(count), can);
        reserved += can ? count : 0;
        break;
      }
      case 1:
        if (reserved > 0) {
          ASSERT_TRUE(holders.emplace(pool.TakeReserved(), 1).second);
          --reserved;
        }
        break;
      case 2:
        if (available > 0) {
          ASSERT_TRUE(holders.emplace(pool.Take(), 1).second);
        }
        break;
      case 3:
        if (!holders.empty()) {
          const BlockId block = any_held();
          pool.Share(block);
          ++holders[block];
        }
        break;
      case 4:
        if (!holders.empty()) {
          const BlockId block = any_held();
          pool.Release(block);
          if (--holders[block] == 0) holders.erase(block);
        }
        break;
      default:
        if (reserved > 0 && random() % 2) {
          pool.Unreserve(1);
          --reserved;
        }
    }
    pool.CheckIntegrity();
    ASSERT_EQ(pool.num_free(), pool.total() - static_cast<int32_t>(holders.size()));
    ASSERT_EQ(pool.reserved(), reserved);
    for (const auto& [block, count] : holders) ASSERT_EQ(pool.refs(block), count);
  }
}

}  // namespace
}  // namespace quire
