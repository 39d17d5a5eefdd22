// Which pages of a remote rank's host memory may be loaded.
#include "engine/worker/remote/stored_pages.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

const HostArena::Shape kShape{.num_pages = 8, .page_bytes = 4096, .checksums = false};

CopyJobMessage Job(uint64_t number, std::initializer_list<PageId> pages) {
  CopyJobMessage job{.job = number};
  for (const PageId page : pages) job.copies[job.count++] = {.block = 1, .page = page};
  return job;
}

CopyAck Ack(const CopyJobMessage& job, CopyStatus status = CopyStatus::kOk) {
  return {.job = job.job, .status = status, .num_good = status == CopyStatus::kOk ? job.count : 0};
}

class StoredPagesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(pages_.Renew("one").ok());
    ASSERT_TRUE(pages_.Allocate(kShape).ok());
  }
  void Store(const CopyJobMessage& job, const CopyAck& ack) {
    pages_.Begin(CopyDirection::kStore, job);
    pages_.End(job, ack);
  }

  StoredPages pages_;
};

TEST_F(StoredPagesTest, OnlyStoredPagesHold) {
  EXPECT_FALSE(pages_.Hold(Job(1, {3})));
  const CopyJobMessage store = Job(1, {3, 5});
  Store(store, Ack(store));
  EXPECT_TRUE(pages_.Hold(Job(2, {5, 3})));
  EXPECT_FALSE(pages_.Hold(Job(2, {5, 4})));
}

TEST_F(StoredPagesTest, AStoreThatFailedOrNeverEndedLeavesNothing) {
  const CopyJobMessage store = Job(1, {3});
  Store(store, Ack(store));
  Store(Job(2, {3}), Ack(store, CopyStatus::kFailed));
  EXPECT_FALSE(pages_.Hold(Job(3, {3})));
  Store(store, Ack(store));
  pages_.Begin(CopyDirection::kLoad, Job(3, {3}));
  EXPECT_TRUE(pages_.Hold(Job(3, {3})));
  pages_.Begin(CopyDirection::kStore, Job(4, {3}));
  EXPECT_FALSE(pages_.Hold(Job(5, {3})));
}

TEST_F(StoredPagesTest, PagesBelongToOneLeader) {
  const CopyJobMessage store = Job(1, {3});
  Store(store, Ack(store));
  ASSERT_TRUE(pages_.Renew("one").ok());
  ASSERT_TRUE(pages_.Allocate(kShape).ok());
  EXPECT_TRUE(pages_.Hold(Job(2, {3}))) << "another worker of the same leader";
  EXPECT_FALSE(pages_.Allocate({.num_pages = 9, .page_bytes = 4096}).ok());
  ASSERT_TRUE(pages_.Renew("two").ok());
  ASSERT_TRUE(pages_.Allocate({.num_pages = 9, .page_bytes = 4096}).ok());
  EXPECT_FALSE(pages_.Hold(Job(2, {3})));
}

}  // namespace
}  // namespace quire
