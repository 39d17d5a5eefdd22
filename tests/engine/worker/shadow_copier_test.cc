// ShadowCopier: a load restores the stored KV; reading a target before its ack, or releasing a
// block too early, finds garbage.
#include "engine/worker/fake/shadow_copier.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

constexpr int32_t kBlockSize = 4;

class ShadowCopierTest : public testing::Test {
 protected:
  ShadowCopierTest() : worker_({.num_blocks = 8, .block_size = kBlockSize, .max_num_seqs = 1}) {}

  void Fill(int32_t block, uint64_t value) {
    for (uint64_t& slot : worker_.Block(block)) slot = value++;
  }
  bool Holds(int32_t block, uint64_t value) {
    for (const uint64_t slot : worker_.Block(block)) {
      if (slot != value++) return false;
    }
    return true;
  }
  CopyJob Job(CopyDirection direction, std::vector<BlockCopy> copies) {
    return {.job = ++last_job_, .direction = direction, .copies = std::move(copies)};
  }
  CopyAck Move(ShadowCopier& copier, CopyDirection direction, std::vector<BlockCopy> copies) {
    copier.Submit(Job(direction, std::move(copies)), worker_);
    return copier.Finish(direction, worker_);
  }

  ShadowWorker worker_;
  uint64_t last_job_ = 0;
};

TEST_F(ShadowCopierTest, LoadsTheKvThatWasStored) {
  ShadowCopier copier(4, kBlockSize);
  Fill(1, 100);
  Fill(2, 200);
  CopyAck ack = Move(copier, CopyDirection::kStore, {{1, 3}, {2, 0}});
  EXPECT_EQ(ack.status, CopyStatus::kOk);
  EXPECT_EQ(ack.num_good, 2);
  Fill(1, 0);
  ack = Move(copier, CopyDirection::kLoad, {{5, 0}, {6, 3}});
  EXPECT_EQ(ack.job, 2u);
  EXPECT_TRUE(Holds(5, 200));
  EXPECT_TRUE(Holds(6, 100));
  EXPECT_EQ(copier.violation(), "");
}

TEST_F(ShadowCopierTest, TargetsHoldGarbageUntilTheAck) {
  ShadowCopier copier(4, kBlockSize);
  Fill(1, 100);
  Fill(2, 100);
  Move(copier, CopyDirection::kStore, {{1, 0}});
  copier.Submit(Job(CopyDirection::kLoad, {{2, 0}}), worker_);
  EXPECT_FALSE(Holds(2, 100));
  copier.Finish(CopyDirection::kLoad, worker_);
  EXPECT_TRUE(Holds(2, 100));
}

TEST_F(ShadowCopierTest, SometimesReadsAtTheEnd) {
  int32_t late = 0;
  ShadowCopier copier(4, kBlockSize);
  for (int i = 0; i < 100; ++i) {
    Fill(1, 100);
    copier.Submit(Job(CopyDirection::kStore, {{1, 0}}), worker_);
    Fill(1, 500);
    copier.Finish(CopyDirection::kStore, worker_);
    Move(copier, CopyDirection::kLoad, {{2, 0}});
    late += Holds(2, 500);
    EXPECT_TRUE(Holds(2, 500) || Holds(2, 100));
  }
  EXPECT_GT(late, 20);
  EXPECT_LT(late, 80);
}

TEST_F(ShadowCopierTest, FaultsLeaveGarbageAndSaySo) {
  ShadowCopier failing(4, kBlockSize, {.fail = 1.0});
  Fill(1, 100);
  CopyAck ack = Move(failing, CopyDirection::kStore, {{1, 0}});
  EXPECT_EQ(ack.status, CopyStatus::kFailed);
  EXPECT_EQ(ack.num_good, 0);
  last_job_ = 0;
  ShadowCopier corrupting(4, kBlockSize, {.corrupt = 1.0});
  ack = Move(corrupting, CopyDirection::kStore, {{1, 0}, {2, 1}});
  EXPECT_EQ(ack.status, CopyStatus::kOk);
  ack = Move(corrupting, CopyDirection::kLoad, {{3, 0}, {4, 1}});
  EXPECT_EQ(ack.status, CopyStatus::kCorrupt);
  EXPECT_EQ(ack.num_good, 0);
  EXPECT_FALSE(Holds(3, 100));
}

TEST_F(ShadowCopierTest, NoticesBadJobs) {
  const std::vector<std::vector<BlockCopy>> bad = {
      {}, {{1, 4}}, {{1, -1}}, {{1, 0}, {1, 1}}, {{1, 0}, {2, 0}}};
  for (const std::vector<BlockCopy>& copies : bad) {
    ShadowCopier copier(4, kBlockSize);
    last_job_ = 0;
    copier.Submit(Job(CopyDirection::kStore, copies), worker_);
    EXPECT_NE(copier.violation(), "");
  }
  ShadowCopier copier(4, kBlockSize);
  last_job_ = 0;
  copier.Submit(Job(CopyDirection::kStore, {{1, 0}}), worker_);
  EXPECT_EQ(copier.violation(), "");
  copier.Submit(Job(CopyDirection::kLoad, {{2, 0}}), worker_);  // not there yet
  EXPECT_NE(copier.violation(), "");
}

TEST_F(ShadowCopierTest, BeginsAnewWithAnotherWorker) {
  ShadowCopier copier(4, kBlockSize);
  Fill(1, 100);
  Move(copier, CopyDirection::kStore, {{1, 0}});
  copier.Submit(Job(CopyDirection::kStore, {{1, 1}}), worker_);
  copier.Die();
  EXPECT_EQ(copier.in_flight(CopyDirection::kStore), 0);
  last_job_ = 0;
  Move(copier, CopyDirection::kLoad, {{2, 0}, {3, 1}});
  EXPECT_TRUE(Holds(2, 100));   // was complete
  EXPECT_FALSE(Holds(3, 100));  // was not
  EXPECT_EQ(copier.violation(), "");
}

}  // namespace
}  // namespace quire
