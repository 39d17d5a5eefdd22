// The table of KV files: which session is due to be written, what of a file is still valid, and
// which file goes first when there is no room.
#include "server/session/archive/kv_files.h"

#include <gtest/gtest.h>

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

  std::shared_ptr<MemoryFolder> folder_ = std::make_shared<MemoryFolder>();
  MemoryDisk disk_{folder_, std::make_shared<DiskFaults>()};
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

}  // namespace
}  // namespace quire
