// Each byte of a whole-model block is where KvRuns says, in every rank that holds its head.
#include "server/session/kv_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace quire {
namespace {

constexpr int32_t kRows = 2 * 3;   // K and V of three layers
constexpr int64_t kHeadBytes = 5;  // of all tokens
constexpr int64_t kNowhere = -1;

// The page of a rank: for each of its bytes, the byte's place in the block of the whole model.
std::vector<int64_t> PageOf(int32_t rank, int32_t ranks, int32_t heads) {
  const int32_t first = rank * heads / ranks;
  const int32_t count = std::max(1, heads / ranks);
  std::vector<int64_t> page;
  for (int32_t row = 0; row < kRows; ++row) {
    for (int32_t head = first; head < first + count; ++head) {
      for (int64_t i = 0; i < kHeadBytes; ++i) {
        page.push_back((int64_t{row} * heads + head) * kHeadBytes + i);
      }
    }
  }
  return page;
}

class KvRunsTest : public ::testing::TestWithParam<std::pair<int32_t, int32_t>> {
 protected:
  const int32_t heads_ = GetParam().first;
  const int32_t ranks_ = GetParam().second;
  const int64_t bytes_ = kRows * heads_ * kHeadBytes;
  const KvRuns runs_{{.bytes = bytes_, .num_layers = 3, .num_kv_heads = heads_}, ranks_};
};

// Writing the block 0, 1, 2... through the runs makes the page of each rank, whole.
TEST_P(KvRunsTest, WritesThePageOfEachRank) {
  std::vector<std::vector<int64_t>> pages;
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    pages.emplace_back(PageOf(rank, ranks_, heads_).size(), kNowhere);
  }
  for (int64_t at = 0; at < bytes_;) {
    const KvRun run = runs_.At(at);
    ASSERT_GT(run.bytes, 0);
    for (int32_t rank = run.first_rank; rank < run.first_rank + run.num_ranks; ++rank) {
      ASSERT_LT(rank, ranks_);
      auto& page = pages[static_cast<size_t>(rank)];
      ASSERT_LE(run.offset + run.bytes, static_cast<int64_t>(page.size()));
      std::iota(page.begin() + run.offset, page.begin() + run.offset + run.bytes, at);
    }
    at += run.bytes;
  }
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    EXPECT_EQ(pages[static_cast<size_t>(rank)], PageOf(rank, ranks_, heads_)) << rank;
  }
}

TEST_P(KvRunsTest, BeginsAtAnyByte) {
  for (int64_t at = 0; at < bytes_; ++at) {
    const KvRun run = runs_.At(at);
    const std::vector<int64_t> page = PageOf(run.first_rank, ranks_, heads_);
    ASSERT_LE(run.offset + run.bytes, static_cast<int64_t>(page.size()));
    for (int64_t i = 0; i < run.bytes; ++i) {
      EXPECT_EQ(page[static_cast<size_t>(run.offset + i)], at + i);
    }
    // The next byte of the block is not the next one of this page: the run is the longest.
    const auto end = static_cast<size_t>(run.offset + run.bytes);
    EXPECT_TRUE(end == page.size() || page[end] != at + run.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadsAndRanks, KvRunsTest, ::testing::ValuesIn([] {
                           std::vector<std::pair<int32_t, int32_t>> cases;
                           for (const int32_t heads : {8, 4, 2, 1}) {
                             for (const int32_t ranks : {1, 2, 4, 8})
                               cases.push_back({heads, ranks});
                           }
                           return cases;
                         }()));

TEST(KvRunTest, TheBlockOfOneRankIsOneRun) {
  const KvRuns runs({.bytes = 960, .num_layers = 3, .num_kv_heads = 8}, 1);
  EXPECT_EQ(runs.At(0).bytes, 960);
  EXPECT_EQ(runs.At(0).num_ranks, 1);
}

// The first rank of each head is read; the others hold the same.
TEST(KvRunTest, ReplicasAreRunsOfSeveralRanks) {
  const KvRuns runs({.bytes = 2 * 2 * 10, .num_layers = 1, .num_kv_heads = 2}, 8);
  const KvRun second = runs.At(10);
  EXPECT_EQ(second.first_rank, 4);
  EXPECT_EQ(second.num_ranks, 4);
  EXPECT_EQ(second.offset, 0);
  EXPECT_EQ(second.bytes, 10);
}

}  // namespace
}  // namespace quire
