// The table of KV files: which session is due to be written, what of a file is still valid, and
// which file goes first when there is no room.
#include "server/session/archive/kv_files.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "engine/base/clock.h"
#include "tests/server/memory_disk.h"

namespace quire {
namespace {

constexpr int64_t kHour = 3'600'000'000'000;

class KvFilesTest : public ::testing::Test {
 protected:
  // An idle session of `position` tokens, all but the last with KV, on the host up to `on_host`.
  static SessionInfo Idle(const SessionName& name, int32_t position, int32_t on_host,
                          int64_t used_ns = 1) {
    return {.name = name,
            .state = SessionState::kHost,
            .options = {.idle_offload_after_seconds = 2},
            .position = position,
            .tiers = {.host_tokens = on_host, .absent_tokens = 1},
            .used_ns = used_ns};
  }
  // A session whose KV is in no tier.
  static SessionInfo Dropped(const SessionName& name, int32_t position, int64_t used_ns = 1) {
    return {.name = name,
            .state = SessionState::kDropped,
            .position = position,
            .tiers = {.absent_tokens = position},
            .used_ns = used_ns};
  }
  // A file of ten bytes for `kv_tokens` tokens.
  void Save(uint64_t number, const SessionInfo& info, int32_t kv_tokens) {
    files_.Note(number, info);
    const auto task = files_.AwaitDue();
    ASSERT_TRUE(task.has_value());
    folder_->files[KvFile(number)] = "0123456789";
    files_.EndWrite(*task, 10, kv_tokens);
  }

  // Whether `call` returns; one that does not is let go when the disk goes on.
  bool Returns(const std::function<void()>& call) {
    auto end = std::async(std::launch::async, call);
    const bool returned = end.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    if (!returned) faults_->GoOn();
    return returned;
  }
  // `call` on a thread of its own, which the disk holds up in the removal of a file.
  std::future<void> HangIn(const std::function<void()>& call) {
    faults_->StopRemovals();
    auto end = std::async(std::launch::async, call);
    while (faults_->removals() == 0) std::this_thread::yield();
    return end;
  }

  std::shared_ptr<MemoryFolder> folder_ = std::make_shared<MemoryFolder>();
  std::shared_ptr<DiskFaults> faults_ = std::make_shared<DiskFaults>();
  MemoryDisk disk_{folder_, faults_};
  KvFiles files_{disk_, [](const absl::Status&) {}};
};

TEST_F(KvFilesTest, AnIdleSessionIsDueWhenItsKvIsOnTheHost) {
  files_.Note(1, Idle("partly", 20, 10));
  EXPECT_EQ(files_.NumUnsaved(), 0);
  EXPECT_EQ(files_.OnDeviceAlone().size(), 1u);
  SessionInfo active = Idle("active", 20, 19);
  active.state = SessionState::kActive;
  files_.Note(2, active);
  EXPECT_EQ(files_.NumUnsaved(), 0);
  files_.Note(3, Idle("later", 20, 19, SteadyNowNs() + kHour));
  files_.Note(4, Idle("now", 20, 19));
  EXPECT_EQ(files_.NumUnsaved(), 2);
  const auto task = files_.AwaitDue();
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->key.second, "now");
  EXPECT_EQ(task->number, 4u);
  files_.EndWrite(*task, 10, 19);
  EXPECT_EQ(files_.bytes(), 10);
  EXPECT_EQ(files_.NumUnsaved(), 1);
  // A server that is ending does not wait.
  files_.Hurry();
  EXPECT_EQ(files_.AwaitDue()->key.second, "later");
  files_.Stop();
  EXPECT_FALSE(files_.AwaitDue().has_value());
}

TEST_F(KvFilesTest, ASessionIsWrittenAgainWhenItHasMoreKv) {
  Save(1, Idle("a", 20, 19), 19);
  files_.Note(1, Idle("a", 20, 19));
  EXPECT_EQ(files_.NumUnsaved(), 0);
  files_.Note(1, Idle("a", 30, 29));
  EXPECT_EQ(files_.NumUnsaved(), 1);
  // A cut makes the file's end worthless, also while it is written.
  const auto task = files_.AwaitDue();
  files_.Cut({0, "a"}, 12);
  files_.EndWrite(*task, 10, 29);
  EXPECT_EQ(files_.NumUnsaved(), 1);
}

TEST_F(KvFilesTest, AFileIsReadForWhatTheSessionLacks) {
  Save(1, Idle("a", 20, 19), 19);
  EXPECT_FALSE(files_.BeginRead({0, "a"}).has_value()) << "the host has it";
  EXPECT_FALSE(files_.BeginRead({0, "b"}).has_value());
  files_.Note(1, Dropped("a", 20));
  const auto task = files_.BeginRead({0, "a"});
  ASSERT_TRUE(task.has_value());
  EXPECT_EQ(task->kv_tokens, 19);
  EXPECT_FALSE(files_.DropOldest()) << "it is being read";
  files_.EndRead(*task, 19);
  // Of a session at the start the file itself must tell.
  files_.Adopt(Dropped("adopted", 50), 7, 10);
  EXPECT_TRUE(files_.BeginRead({0, "adopted"}).has_value());
  files_.EndRead({.key = {0, "adopted"}, .number = 7, .bytes = 10}, 0);
  EXPECT_FALSE(files_.BeginRead({0, "adopted"}).has_value()) << "it was damaged";
  EXPECT_EQ(files_.bytes(), 10);
}

TEST_F(KvFilesTest, TheLongestUnusedGoesFirst) {
  Save(1, Idle("a", 20, 19, 30), 19);
  Save(2, Idle("b", 20, 19, 10), 19);
  Save(3, Idle("c", 20, 19, 20), 19);
  EXPECT_FALSE(files_.DropOldest(10)) << "none was used before";
  EXPECT_TRUE(files_.DropOldest(25));
  EXPECT_FALSE(folder_->files.contains("2.kv"));
  EXPECT_TRUE(files_.DropOldest(25));
  EXPECT_FALSE(folder_->files.contains("3.kv"));
  EXPECT_FALSE(files_.DropOldest(25));
  EXPECT_EQ(files_.bytes(), 10);
  files_.Forget({0, "a"});
  EXPECT_TRUE(folder_->files.empty());
  EXPECT_EQ(files_.bytes(), 0);
}

// A name may have gone to another session while its file was written or read.
TEST_F(KvFilesTest, ATaskOfAClosedSessionChangesNothing) {
  files_.Note(1, Idle("a", 20, 19));
  const auto task = files_.AwaitDue();
  files_.Forget({0, "a"});
  files_.Note(2, Idle("a", 20, 10));
  EXPECT_FALSE(files_.Exists(*task));
  files_.EndWrite(*task, 10, 19);
  files_.EndRead(*task, 0);
  EXPECT_EQ(files_.bytes(), 0);
  EXPECT_EQ(files_.NumUnsaved(), 0);
}

// Turns and the scheduler's changes come here while another thread waits for the disk.
TEST_F(KvFilesTest, ADiskThatHangsInARemovalHoldsUpNoOtherCall) {
  Save(1, Idle("dropped", 20, 19, 10), 19);
  Save(2, Idle("closed", 20, 19, 20), 19);
  Save(3, Idle("damaged", 20, 19, 30), 19);
  Save(4, Idle("other", 20, 19, 40), 19);
  for (const SessionInfo& info : {Dropped("damaged", 20, 30), Dropped("other", 20, 40)}) {
    files_.Note(info.name == "other" ? 4 : 3, info);
  }
  const std::vector<std::function<void()>> removals = {
      [this] { EXPECT_TRUE(files_.DropOldest()); },
      [this] {
        files_.Forget({0, "closed"});
      },
      [this] {
        files_.EndRead(files_.BeginRead({0, "damaged"}).value(), 0);
      }};
  for (const std::function<void()>& removal : removals) {
    const std::future<void> end = HangIn(removal);
    EXPECT_TRUE(Returns([this] {
      const auto task = files_.BeginRead({0, "other"});
      EXPECT_TRUE(task.has_value());
      files_.EndRead(*task, std::nullopt);
      files_.Note(4, Dropped("other", 20, 40));
      EXPECT_EQ(files_.NumUnsaved(), 0);
    }));
    faults_->GoOn();
    end.wait();
  }
  EXPECT_EQ(folder_->files.size(), 1u);
  EXPECT_EQ(files_.bytes(), 10);
}

// Else the removal would end with the new file, and the table would have it still.
TEST_F(KvFilesTest, AFileIsWrittenAgainOnlyBehindTheOldOnesRemoval) {
  Save(1, Idle("a", 20, 19, 10), 19);
  const std::future<void> end = HangIn([this] { EXPECT_TRUE(files_.DropOldest()); });
  EXPECT_TRUE(Returns([this] {
    files_.Note(1, Idle("a", 30, 29, 10));
    EXPECT_EQ(files_.NumUnsaved(), 1);
    EXPECT_FALSE(files_.BeginRead({0, "a"}).has_value()) << "its file is on its way out";
    files_.Note(2, Idle("b", 20, 19, 20));
    EXPECT_EQ(files_.AwaitDue()->key.second, "b") << "though the other has waited longer";
  }));
  faults_->GoOn();
  EXPECT_EQ(files_.AwaitDue()->key.second, "a");
  end.wait();
}

}  // namespace
}  // namespace quire
