// The owners of blocks and pages in situations small enough to count by hand, and requests by
// priority.
// Covers engine/values/kv_map.cc
#include "engine/schedule/view_taker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "engine/schedule/kv/kv_map_builder.h"
#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

using testing::ElementsAre;

constexpr int32_t kBlocks = 60;
constexpr int32_t kPages = 40;
constexpr int64_t kSecond = 1'000'000'000;

// Blocks of 4 tokens.
class ViewTest : public testing::Test {
 protected:
  SchedulerView View() {
    SchedulerView view;
    EXPECT_TRUE(sim_.scheduler().ReadView(view));
    EXPECT_EQ(std::accumulate(view.kv.blocks.begin(), view.kv.blocks.end(), 0), kBlocks);
    EXPECT_EQ(std::accumulate(view.kv.pages.begin(), view.kv.pages.end(), 0), kPages);
    return view;
  }
  // "session=5 free=55": the owners that have any, by name.
  std::string Blocks() {
    const KvMap map = View().kv;
    std::string text;
    for (size_t i = kNumBlockOwners; i-- > 0;) {
      if (map.blocks[i] == 0) continue;
      text += (text.empty() ? "" : " ") + std::string(Name(static_cast<BlockOwner>(i))) + "=" +
              std::to_string(map.blocks[i]);
    }
    return text;
  }
  std::string Pages() {
    const KvMap map = View().kv;
    std::string text;
    for (size_t i = kNumPageOwners; i-- > 0;) {
      if (map.pages[i] == 0) continue;
      text += (text.empty() ? "" : " ") + std::string(Name(static_cast<PageOwner>(i))) + "=" +
              std::to_string(map.pages[i]);
    }
    return text;
  }
  // A turn of 10 tokens in and 9 out: 18 tokens with KV, in 4 full blocks and a tail.
  void Converse(const std::string& name) {
    sim_.CreateSession(0, name);
    sim_.Add({.prompt_tokens = 10, .max_tokens = 9, .stops_at_eos = false, .session = name});
    sim_.RunToEnd(1);
  }
  void Offload(const std::string& name) {
    EXPECT_TRUE(sim_.scheduler().sessions().Offload(0, name, sim_.now_ns).ok());
    sim_.RunCopies();
    sim_.now_ns += kSecond;
    sim_.OnTimer();
  }

  SimulatedEngine sim_{SessionConfig(kBlocks, kPages, /*max_model_len=*/200)};
};

TEST_F(ViewTest, AnIdlePoolIsFree) {
  const SchedulerView view = View();
  EXPECT_EQ(Blocks(), "free=60");
  EXPECT_EQ(Pages(), "unused=40");
  EXPECT_EQ(view.kv.block_cells, std::vector<BlockOwner>(kBlocks, BlockOwner::kFree));
  EXPECT_EQ(view.kv.page_cells, std::vector<PageOwner>(kPages, PageOwner::kUnused));
  EXPECT_EQ(view.kv.blocks_per_cell, 1);
  EXPECT_TRUE(view.classes.empty());
}

TEST_F(ViewTest, APromptIsRunningAndLaterCached) {
  sim_.Add({.prompt_tokens = 8, .max_tokens = 4, .stops_at_eos = false});
  ASSERT_TRUE(sim_.Schedule());
  EXPECT_EQ(Blocks(), "running=2 free=58");
  sim_.Retire();
  ASSERT_TRUE(sim_.Schedule());  // computes token 9
  EXPECT_EQ(Blocks(), "running=3 free=57");
  sim_.RunToEnd(1);
  EXPECT_EQ(Blocks(), "cached=2 free=58");  // the third block was not full
  const std::vector<BlockOwner> cells = View().kv.block_cells;
  EXPECT_EQ(std::count(cells.begin(), cells.end(), BlockOwner::kCached), 2);
}

TEST_F(ViewTest, ASharedPrefixCountsOnce) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  sim_.Add({.max_tokens = 1, .stops_at_eos = false, .prompt = prompt});
  sim_.RunToEnd(1);
  EXPECT_EQ(Blocks(), "cached=2 free=58");
  sim_.Add({.max_tokens = 4, .stops_at_eos = false, .prompt = prompt});
  sim_.Add({.max_tokens = 4, .stops_at_eos = false, .prompt = prompt});
  ASSERT_TRUE(sim_.Schedule());
  EXPECT_EQ(Blocks(), "running=4 free=56");  // two shared, and one each for token 9
  sim_.RunToEnd(1);
}

TEST_F(ViewTest, KvOfASessionMovesThroughBothTiers) {
  Converse("s");
  EXPECT_EQ(Blocks(), "session=5 free=55");
  EXPECT_EQ(Pages(), "unused=40");

  EXPECT_TRUE(sim_.scheduler().sessions().Save(0, "s", sim_.now_ns).ok());
  ASSERT_TRUE(sim_.SendCopy());
  EXPECT_EQ(Blocks(), "copying=5 free=55");
  EXPECT_EQ(Pages(), "copying=5 unused=35");
  ASSERT_TRUE(sim_.FinishCopy(CopyDirection::kStore));
  EXPECT_EQ(Blocks(), "session=5 free=55");
  EXPECT_EQ(Pages(), "backed=5 unused=35");

  Offload("s");
  EXPECT_EQ(Blocks(), "free=60");
  EXPECT_EQ(Pages(), "session=5 unused=35");

  EXPECT_TRUE(sim_.scheduler().sessions().Prefetch(0, "s", sim_.now_ns).ok());
  sim_.RunCopies();
  EXPECT_EQ(Blocks(), "session=5 free=55");
  EXPECT_EQ(Pages(), "backed=5 unused=35");
}

TEST_F(ViewTest, ForkedSessionsShareTheirBlocks) {
  Converse("s");
  EXPECT_TRUE(sim_.scheduler().sessions().Fork(0, "s", "t", std::nullopt, sim_.now_ns).ok());
  EXPECT_EQ(Blocks(), "session=5 free=55");
}

TEST_F(ViewTest, ARestoringRequestOwnsTheBlocksThatCameBack) {
  Converse("s");
  Offload("s");
  sim_.Add({.prompt_tokens = 10, .max_tokens = 9, .stops_at_eos = false, .session = "s"});
  EXPECT_FALSE(sim_.Schedule());
  ASSERT_TRUE(sim_.SendCopy());
  EXPECT_EQ(Blocks(), "copying=5 free=55");
  EXPECT_EQ(Pages(), "copying=5 unused=35");
  EXPECT_THAT(View().classes, ElementsAre(testing::Field(&PriorityClass::restoring, 1)));
  ASSERT_TRUE(sim_.FinishCopy(CopyDirection::kLoad));
  EXPECT_EQ(Blocks(), "restoring=5 free=55");
  EXPECT_EQ(Pages(), "backed=5 unused=35");
  ASSERT_TRUE(sim_.Schedule());
  // 19 known tokens and 10 new ones: 29 tokens in 8 blocks.
  EXPECT_EQ(Blocks(), "running=8 free=52");
  sim_.RunToEnd(1);
}

TEST_F(ViewTest, ThePagesOfAClosedSessionHoldTheOnlyCopyOfCachedKv) {
  Converse("s");
  Offload("s");
  EXPECT_TRUE(sim_.scheduler().sessions().Close(0, "s").ok());
  // The tail is found by no search, so its page is spare too, until another node needs it.
  EXPECT_EQ(Pages(), "cached=5 unused=35");
}

TEST_F(ViewTest, PagesThatAreNotReadyAreNamed) {
  SchedulerConfig config = SessionConfig(kBlocks, kPages, 200);
  config.pages_arrive = true;
  Scheduler scheduler(config);
  scheduler.OnPagesReady(30);
  SchedulerView view;
  ASSERT_TRUE(scheduler.ReadView(view));
  const KvMap& map = view.kv;
  EXPECT_EQ(map.pages[static_cast<size_t>(PageOwner::kNotReady)], 10);
  EXPECT_EQ(map.pages[static_cast<size_t>(PageOwner::kUnused)], 30);
  EXPECT_EQ(map.page_cells[29], PageOwner::kUnused);
  EXPECT_EQ(map.page_cells[30], PageOwner::kNotReady);
}

TEST_F(ViewTest, ClassesComeHighestFirstAndTheLastJoinsTheRest) {
  for (int32_t priority = 0; priority < 12; ++priority) {
    sim_.Add({.prompt_tokens = 8, .max_tokens = 4, .priority = priority, .stops_at_eos = false});
  }
  ASSERT_TRUE(sim_.Schedule());  // four rows
  const std::vector<PriorityClass> classes = View().classes;
  ASSERT_EQ(classes.size(), SchedulerView::kMaxClasses);
  for (int32_t i = 0; i < 7; ++i) {
    EXPECT_EQ(classes[i].priority, 11 - i);
    EXPECT_EQ(classes[i].running, i < 4);
    EXPECT_EQ(classes[i].waiting, i >= 4);
  }
  EXPECT_EQ(classes[7].priority, 4);
  EXPECT_EQ(classes[7].waiting, 5);
  sim_.RunToEnd(1);
}

KvMap MapOf(const BlockPool& pool, const PrefixTree& tree) {
  KvMapBuilder builder(pool, tree.nodes());
  EXPECT_TRUE(builder.ReadNodes(tree.nodes().tree().num_nodes()));
  return builder.Build();
}

int32_t Count(const KvMap& map, BlockOwner owner) { return map.blocks[static_cast<size_t>(owner)]; }

// A pool of three times as many blocks as cells, with the first five blocks taken.
TEST(KvMapTest, ACellOfALargePoolShowsTheOwnerOfMostBlocks) {
  BlockPool pool(3 * KvMap::kMaxCells + 1);
  PrefixTree tree(pool, 4, 0, 1);
  for (int i = 0; i < 5; ++i) pool.Take();
  const KvMap map = MapOf(pool, tree);
  EXPECT_EQ(map.blocks_per_cell, 3);
  ASSERT_EQ(map.block_cells.size(), size_t{KvMap::kMaxCells});
  EXPECT_EQ(map.block_cells[0], BlockOwner::kRunning);
  EXPECT_EQ(map.block_cells[1], BlockOwner::kRunning);  // two of its three blocks
  EXPECT_EQ(map.block_cells[2], BlockOwner::kFree);
  EXPECT_EQ(Count(map, BlockOwner::kRunning), 5);
  EXPECT_TRUE(map.page_cells.empty());
}

// Caches a block of four tokens that begin with `first`.
BlockId CacheBlock(BlockPool& pool, PrefixTree& tree, int32_t first) {
  const NodeId root = tree.Find(0, {});
  tree.Hold(root);
  const BlockId block = pool.Take();
  tree.Release(tree.Insert(root, std::vector<int32_t>{first, 1, 2, 3}, block).node);
  tree.Release(root);
  return block;
}

TEST(KvMapTest, TheTreeIsReadInParts) {
  BlockPool pool(11);
  PrefixTree tree(pool, 4, 0, 1);
  for (int32_t i = 0; i < 3; ++i) CacheBlock(pool, tree, i);
  KvMapBuilder builder(pool, tree.nodes());
  int parts = 1;
  while (!builder.ReadNodes(10)) ++parts;
  EXPECT_EQ(parts, (tree.nodes().tree().num_nodes() + 9) / 10);
  const KvMap map = builder.Build();
  EXPECT_EQ(map.block_cells, MapOf(pool, tree).block_cells);
  EXPECT_EQ(Count(map, BlockOwner::kCached), 3);
}

TEST(KvMapTest, ChangesBetweenPartsLeaveEveryBlockCountedOnce) {
  BlockPool pool(11);
  PrefixTree tree(pool, 4, 0, 1);
  for (int32_t i = 0; i < 3; ++i) CacheBlock(pool, tree, i);
  KvMapBuilder builder(pool, tree.nodes());
  EXPECT_FALSE(builder.ReadNodes(5));
  tree.ForgetDevice();  // all three are free, and one stays so
  pool.Take();          // a row's
  CacheBlock(pool, tree, 3);
  EXPECT_TRUE(builder.ReadNodes(1000));
  const KvMap map = builder.Build();
  EXPECT_EQ(Count(map, BlockOwner::kFree), 8);
  EXPECT_EQ(std::accumulate(map.blocks.begin(), map.blocks.end(), 0), 10);
}

}  // namespace
}  // namespace quire
