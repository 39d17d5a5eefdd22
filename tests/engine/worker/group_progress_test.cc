// Which rank holds its group up: by the counts of steps, collectives and copies while the group
// runs, and by the time that the other ranks took while it starts.
#include "engine/worker/process/group_progress.h"

#include "gmock/gmock.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using Stage = StartProgress::Stage;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMillisecond = 1'000'000;

class GroupProgressTest : public ::testing::Test {
 protected:
  explicit GroupProgressTest(int32_t ranks = 3) {
    const StepMemory::Shape shape{.ranks = ranks,
                                  .depth = 2,
                                  .bounds = {.max_rows = 1, .max_tokens = 1, .num_blocks = 1},
                                  .num_pages = 1,
                                  .block_bytes = 64};
    memory_ = std::make_shared<StepMemory>(
        *StepMemory::Create(*SharedMemory::Create("quire steps"), shape));
    progress_.emplace(memory_);
  }
  void Publish(int steps) {
    for (int i = 0; i < steps; ++i) memory_->plans().Publish();
  }
  void Beat(int32_t rank, uint64_t launched, uint64_t collectives, uint64_t finished) {
    Heartbeat& heart = memory_->heartbeat(rank);
    heart.launched = launched;
    heart.collectives = collectives;
    heart.finished = finished;
  }
  // With a timeout of 2 s: standing still from `kSecond` on.
  GroupProgress::Stall StallOf() {
    EXPECT_FALSE(progress_->Check(kSecond, 2).has_value());
    EXPECT_FALSE(progress_->Check(3 * kSecond, 2).has_value());
    return progress_->Check(3 * kSecond + 3 * kMillisecond, 2).value();
  }

  std::shared_ptr<StepMemory> memory_;
  std::optional<GroupProgress> progress_;
};

TEST_F(GroupProgressTest, TheRankWithFewestLaunchedStepsIsBehind) {
  Publish(8);
  Beat(0, 7, 50, 6);
  Beat(1, 7, 50, 6);
  Beat(2, 6, 90, 6);
  const GroupProgress::Stall stall = StallOf();
  EXPECT_THAT(stall.behind, ElementsAre(2));
  EXPECT_EQ(stall.work, "no step for 2003 ms (step 7 of 8)");
  EXPECT_EQ(stall.counts[2], "launched 6 steps, begun 90 collectives, finished 6 steps");
}

TEST_F(GroupProgressTest, ThenTheRankWithFewestCollectivesIsBehind) {
  Publish(7);
  Beat(0, 6, 5, 6);
  Beat(1, 6, 3, 6);
  Beat(2, 6, 5, 6);
  const GroupProgress::Stall stall = StallOf();
  EXPECT_THAT(stall.behind, ElementsAre(1));
  EXPECT_THAT(stall.counts, ElementsAre("launched 6 steps, begun 5 collectives, finished 6 steps",
                                        "launched 6 steps, begun 3 collectives, finished 6 steps",
                                        "launched 6 steps, begun 5 collectives, finished 6 steps"));
}

TEST_F(GroupProgressTest, ThenTheRankWithFewestFinishedStepsIsBehind) {
  Publish(2);
  Beat(0, 2, 1, 0);
  Beat(1, 2, 1, 2);
  Beat(2, 2, 1, 1);
  const GroupProgress::Stall stall = StallOf();
  EXPECT_THAT(stall.behind, ElementsAre(0));
  EXPECT_EQ(stall.work, "no step for 2003 ms (step 1 of 2)");
  EXPECT_EQ(stall.counts[2], "launched 2 steps, begun 1 collective, finished 1 step");
}

TEST_F(GroupProgressTest, EqualCountsAccuseNoRankOrSeveral) {
  Publish(1);
  EXPECT_THAT(StallOf().behind, ElementsAre(0, 1, 2));
  Beat(1, 0, 1, 0);
  EXPECT_THAT(progress_->Check(4 * kSecond, 2)->behind, ElementsAre(0, 2));
}

TEST_F(GroupProgressTest, ProgressOfEveryRankAndAnIdleGroupAreNoStall) {
  for (int second = 1; second < 9; ++second) {
    Publish(1);
    EXPECT_FALSE(progress_->Check(second * kSecond, 2).has_value());
    for (int32_t rank = 0; rank < 3; ++rank) Beat(rank, second, 0, second);
  }
  EXPECT_FALSE(progress_->Check(100 * kSecond, 2).has_value());
  EXPECT_FALSE(progress_->Check(200 * kSecond, 2).has_value());
}

TEST_F(GroupProgressTest, TheRankWithFewestCopiesIsBehind) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    for (int job = 0; job < 3; ++job) {
      memory_->copies(rank).jobs(CopyDirection::kStore).Publish();
      if (rank != 1 || job < 1) memory_->copies(rank).acks(CopyDirection::kStore).Publish();
    }
    Beat(rank, 4, rank == 1 ? 9 : 3, 4);
  }
  const GroupProgress::Stall stall = StallOf();
  EXPECT_THAT(stall.behind, ElementsAre(1));
  EXPECT_EQ(stall.work, "no store for 2003 ms (store 2 of 3)");
  EXPECT_EQ(stall.counts[1],
            "finished 1 store, launched 4 steps, begun 9 collectives, finished 4 steps");
}

// A copy waits for the steps before it, and these for the other ranks.
TEST_F(GroupProgressTest, EqualCopiesAreToldApartByTheStepsBehindThem) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    memory_->copies(rank).jobs(CopyDirection::kLoad).Publish();
    Beat(rank, 1, rank == 2 ? 3 : 4, 0);
  }
  const GroupProgress::Stall stall = StallOf();
  EXPECT_THAT(stall.behind, ElementsAre(2));
  EXPECT_EQ(stall.work, "no load for 2003 ms (load 1 of 1)");
}

// The times of checks are seconds after the start; the timeout is 2 s.
std::optional<int32_t> Late(StartProgress& progress, double seconds, std::vector<Stage> stages) {
  const auto now_ns = kSecond + static_cast<int64_t>(seconds * kSecond);
  const auto lag = progress.Check(stages, now_ns, 2);
  if (!lag) return std::nullopt;
  EXPECT_EQ(lag->ranks.size(), 1u);
  return lag->ranks.front();
}

TEST(StartProgressTest, TheLastRankMayTakeTwiceTheTimeOfTheOthersAndTheTimeout) {
  StartProgress progress(3, kSecond);
  EXPECT_EQ(Late(progress, 50, {{1}, {0}, {0}}), std::nullopt);
  EXPECT_EQ(Late(progress, 60, {{1}, {0}, {1}}), std::nullopt);
  EXPECT_EQ(Late(progress, 122, {{1}, {0}, {1}}), std::nullopt);
  const auto lag = progress.Check(std::vector<Stage>{{1}, {0}, {1}}, 124 * kSecond, 2);
  ASSERT_TRUE(lag.has_value());
  EXPECT_THAT(lag->ranks, ElementsAre(1));
  EXPECT_EQ(lag->waited_ns, 123 * kSecond);
  EXPECT_EQ(lag->others_ns, 60 * kSecond);
}

TEST(StartProgressTest, SeveralRanksAreLateTogether) {
  StartProgress progress(4, kSecond);
  EXPECT_EQ(Late(progress, 10, {{1}, {1}, {0}, {0}}), std::nullopt);
  EXPECT_EQ(Late(progress, 22, {{1}, {1}, {0}, {0}}), std::nullopt);
  const auto lag = progress.Check(std::vector<Stage>{{1}, {1}, {0}, {0}}, 23.1 * kSecond, 2);
  ASSERT_TRUE(lag.has_value());
  EXPECT_THAT(lag->ranks, ElementsAre(2, 3));
  // While none is ahead there is nothing to measure by.
  StartProgress equal(2, kSecond);
  EXPECT_EQ(Late(equal, 100000, {{0}, {0}}), std::nullopt);
}

TEST(StartProgressTest, EveryPhaseHasItsOwnDeadline) {
  StartProgress progress(2, kSecond);
  EXPECT_EQ(Late(progress, 10, {{1}, {1}}), std::nullopt);
  // The server plans; no rank is waited for.
  EXPECT_EQ(Late(progress, 90, {{1}, {1}}), std::nullopt);
  progress.Begin(101 * kSecond);
  EXPECT_EQ(Late(progress, 103, {{1}, {2}}), std::nullopt);
  EXPECT_EQ(Late(progress, 107.9, {{1}, {2}}), std::nullopt);
  EXPECT_EQ(Late(progress, 108, {{2}, {2}}), std::nullopt);
  EXPECT_EQ(Late(progress, 109, {{3}, {2}}), std::nullopt);
  EXPECT_EQ(Late(progress, 112, {{3}, {2}}), std::nullopt);
  EXPECT_EQ(Late(progress, 112.1, {{3}, {2}}), 1);
}

// A rank that loads may wait for another one in a collective; no message tells.
TEST(StartProgressTest, ARankThatBeginsNoCollectiveIsLate) {
  StartProgress progress(2, kSecond);
  EXPECT_EQ(Late(progress, 10, {{1, 5}, {1, 4}}), std::nullopt);
  EXPECT_EQ(Late(progress, 20, {{1, 5}, {1, 5}}), std::nullopt);
  EXPECT_EQ(Late(progress, 21, {{1, 5}, {1, 6}}), std::nullopt);
  EXPECT_EQ(Late(progress, 33, {{1, 5}, {1, 6}}), std::nullopt);
  EXPECT_EQ(Late(progress, 34.1, {{1, 5}, {1, 6}}), 0);
}

TEST(StartProgressTest, OneRankHasNoDeadline) {
  StartProgress progress(1, kSecond);
  EXPECT_EQ(Late(progress, 1, {{0}}), std::nullopt);
  EXPECT_EQ(Late(progress, 100000, {{0}}), std::nullopt);
}

}  // namespace
}  // namespace quire
