// The journals of sessions: wherever a file is cut, it has the session as its last complete record
// left it; damage of any byte is refused; a server that dies in any of its writes loses nothing
// that it has confirmed.
// Covers server/session/archive/session_journal.cc, server/session/archive/session_directory.cc,
// server/session/archive/journals.cc
#include "server/session/archive/session_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <map>
#include <optional>
#include <random>

#include "server/session/archive/journals.h"
#include "server/session/archive/session_directory.h"
#include "tests/server/memory_disk.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

constexpr uint64_t kModel = 0x1234;

// --- The format.

struct Sample {
  std::string bytes;
  std::map<size_t, Tokens> states;  // the session by the file's length
};

Sample MakeSample() {
  Sample sample;
  uint64_t checksum = 0;
  sample.bytes = EncodeHeader(
      {.model = "demo", .model_identity = kModel, .tenant = 7, .name = "fox", .created_ns = 1'000},
      &checksum);
  Tokens tokens;
  const auto record = [&](int32_t kept, const Tokens& added, uint64_t turns) {
    sample.bytes += EncodeRecord(
        {.kept = kept,
         .options = {.ttl_seconds = 60, .idle_offload_after_seconds = 2, .retain_priority = -3},
         .turns = turns,
         .used_ns = 5'000},
        added, &checksum);
    tokens.resize(static_cast<size_t>(kept));
    tokens.insert(tokens.end(), added.begin(), added.end());
    sample.states[sample.bytes.size()] = tokens;
  };
  record(0, {1, 2, 3}, 1);
  record(3, {4, 5}, 2);
  record(2, {}, 2);  // truncated
  record(1, {9, 8, 7, 6}, 3);
  record(5, {}, 3);  // touched
  return sample;
}

TEST(SessionJournalTest, ReadsWhatWasWritten) {
  const Sample sample = MakeSample();
  const absl::StatusOr<Journal> journal = ReadJournal(sample.bytes);
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->header.model, "demo");
  EXPECT_EQ(journal->header.model_identity, kModel);
  EXPECT_EQ(journal->header.tenant, 7u);
  EXPECT_EQ(journal->header.name, "fox");
  EXPECT_EQ(journal->header.created_ns, 1'000);
  EXPECT_EQ(journal->tokens, (Tokens{1, 9, 8, 7, 6}));
  EXPECT_EQ(journal->last.turns, 3u);
  EXPECT_EQ(journal->last.used_ns, 5'000);
  EXPECT_EQ(journal->last.options.ttl_seconds, 60);
  EXPECT_EQ(journal->last.options.idle_offload_after_seconds, 2);
  EXPECT_EQ(journal->last.options.retain_priority, -3);
  EXPECT_EQ(journal->bytes, static_cast<int64_t>(sample.bytes.size()));
  EXPECT_FALSE(journal->torn);
}

TEST(SessionJournalTest, ATornFileEndsWithItsLastCompleteRecord) {
  const Sample sample = MakeSample();
  for (size_t length = 0; length <= sample.bytes.size(); ++length) {
    const absl::StatusOr<Journal> journal = ReadJournal(sample.bytes.substr(0, length));
    auto state = sample.states.upper_bound(length);
    if (state == sample.states.begin()) {
      EXPECT_TRUE(absl::IsDataLoss(journal.status())) << length;
      continue;
    }
    --state;
    ASSERT_TRUE(journal.ok()) << length << ": " << journal.status();
    EXPECT_EQ(journal->tokens, state->second) << length;
    EXPECT_EQ(journal->bytes, static_cast<int64_t>(state->first));
    EXPECT_EQ(journal->torn, state->first != length);
  }
}

TEST(SessionJournalTest, EveryChangedByteIsRefused) {
  const Sample sample = MakeSample();
  for (size_t at = 0; at < sample.bytes.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string changed = sample.bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      EXPECT_TRUE(absl::IsDataLoss(ReadJournal(changed).status())) << at << " bit " << bit;
    }
  }
}

TEST(SessionJournalTest, RecordsCannotBeLeftOutOrRepeated) {
  const Sample sample = MakeSample();
  std::vector<size_t> ends;
  for (const auto& [end, tokens] : sample.states) ends.push_back(end);
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    const std::string record = sample.bytes.substr(ends[i], ends[i + 1] - ends[i]);
    const std::string before = sample.bytes.substr(0, ends[i]);
    const std::string behind = sample.bytes.substr(ends[i + 1]);
    EXPECT_TRUE(absl::IsDataLoss(ReadJournal(before + record + record + behind).status()));
    if (behind.empty()) continue;
    EXPECT_TRUE(absl::IsDataLoss(ReadJournal(before + behind).status()));
  }
}

// --- Files.

SessionInfo Info(const SessionName& name, int32_t position, uint64_t turns) {
  return {.name = name,
          .tenant = 7,
          .options = {.ttl_seconds = 60, .idle_offload_after_seconds = 2},
          .position = position,
          .turns = turns,
          .used_ns = static_cast<int64_t>(turns) * 1'000'000'000};
}

class JournalsTest : public ::testing::Test {
 protected:
  void Restart() {
    faults_ = std::make_shared<DiskFaults>();
    disk_ = std::make_unique<MemoryDisk>(folder_, faults_);
    const absl::StatusOr<DirectoryContents> contents = ReadDirectory(*disk_, "demo", kModel);
    ASSERT_TRUE(contents.ok()) << contents.status();
    journals_ = std::make_unique<Journals>(
        *disk_,
        Journals::Settings{.model = "demo",
                           .model_identity = kModel,
                           .make_room = [] { return false; },
                           .on_failure = [this](const char*, const absl::Status&) { ++failures_; }},
        contents->next_number);
    found_.clear();
    for (const LeftSession& left : contents->sessions) {
      found_[left.journal.header.name] = left.journal.tokens;
      journals_->Adopt(left.number, left.journal);
    }
    damaged_ = contents->damaged;
  }

  std::shared_ptr<MemoryFolder> folder_ = std::make_shared<MemoryFolder>();
  std::shared_ptr<DiskFaults> faults_;
  std::unique_ptr<MemoryDisk> disk_;
  std::unique_ptr<Journals> journals_;
  std::map<SessionName, Tokens> found_;
  int64_t damaged_ = 0;
  int failures_ = 0;
};

// Changes three sessions at random; stops when the disk has died. A session as it was confirmed
// last, and as the change that was not confirmed would have left it; nullopt: gone.
class RandomChanges {
 public:
  using State = std::optional<Tokens>;

  RandomChanges(Journals& journals, uint32_t seed) : journals_(journals), random_(seed) {}

  void Run(int changes) {
    for (int i = 0; i < changes && ended_.empty(); ++i) Change();
  }
  // Aborts the test if a session is neither.
  void Check(const std::map<SessionName, Tokens>& found, const std::string& where) const {
    for (const SessionName name : {"a", "b", "c"}) {
      const auto at = found.find(name);
      const State state = at == found.end() ? State() : State(at->second);
      const auto confirmed = confirmed_.find(name);
      const State expected = confirmed == confirmed_.end() ? State() : confirmed->second;
      if (name == ended_ && state == attempted_) continue;
      ASSERT_EQ(state, expected) << where << " session " << name;
    }
  }
  const SessionName& ended() const { return ended_; }

 private:
  int32_t Below(size_t bound) { return static_cast<int32_t>(random_() % bound); }

  void Change() {
    const SessionName name(1, static_cast<char>('a' + Below(3)));
    const State before = confirmed_[name];
    if (before && Below(8) == 0) {
      attempted_ = State();
      journals_.Remove({7, name});
      // A file that could not be removed is found again: the client saw no answer.
      if (died_ && died_()) {
        ended_ = name;
      } else {
        confirmed_[name] = State();
      }
      return;
    }
    Tokens tokens = before.value_or(Tokens());
    const int32_t kept = tokens.empty() ? 0 : Below(tokens.size() + 1);
    Tokens added(static_cast<size_t>(Below(600)));
    for (int32_t& token : added) token = Below(1000);
    tokens.resize(static_cast<size_t>(kept));
    tokens.insert(tokens.end(), added.begin(), added.end());
    attempted_ = tokens;
    if (journals_.Append(Info(name, static_cast<int32_t>(tokens.size()), ++turns_), kept, added)) {
      confirmed_[name] = tokens;
    } else {
      ended_ = name;
    }
  }

 public:
  std::function<bool()> died_;

 private:
  Journals& journals_;
  std::mt19937 random_;
  std::map<SessionName, State> confirmed_;
  State attempted_;
  SessionName ended_;
  uint64_t turns_ = 0;
};

TEST_F(JournalsTest, SessionsAreFoundAgain) {
  Restart();
  RandomChanges changes(*journals_, 1);
  changes.Run(300);
  EXPECT_EQ(failures_, 0);
  EXPECT_EQ(journals_->bytes(), folder_->Bytes());
  Restart();
  changes.Check(found_, "at the end");
  EXPECT_EQ(journals_->bytes(), folder_->Bytes());
}

// Dies in each change of the folder in turn, with nothing, a part or all of it done.
TEST_F(JournalsTest, ADeathInAnyWriteLosesNothingConfirmed) {
  for (const double share : {0.0, 0.4, 0.999}) {
    for (int64_t operation = 0;; ++operation) {
      folder_ = std::make_shared<MemoryFolder>();
      Restart();
      faults_->DieAt(operation, share);
      RandomChanges changes(*journals_, 2);
      changes.died_ = [this] { return failures_ > 0; };
      failures_ = 0;
      changes.Run(60);
      const bool died = !changes.ended().empty();
      Restart();
      changes.Check(found_, "operation " + std::to_string(operation));
      EXPECT_EQ(damaged_, 0);
      if (!died && operation > 250) break;
      ASSERT_LT(operation, 2000);
    }
  }
}

TEST_F(JournalsTest, AfterAFailureTheWholeSessionIsWritten) {
  Restart();
  ASSERT_TRUE(journals_->Append(Info("a", 3, 1), 0, Tokens{1, 2, 3}));
  faults_->Break(true);
  EXPECT_FALSE(journals_->Append(Info("a", 5, 2), 3, Tokens{4, 5}));
  EXPECT_EQ(failures_, 1);
  faults_->Break(false);
  EXPECT_FALSE(journals_->Append(Info("a", 6, 3), 5, Tokens{6})) << "a record is missing";
  EXPECT_FALSE(journals_->Complete({7, "a"}));
  EXPECT_THAT(journals_->NextIncomplete(9), ::testing::ElementsAre(SessionKey(7, "a")));
  EXPECT_TRUE(journals_->Rewrite(Info("a", 6, 3), Tokens{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(journals_->Append(Info("a", 7, 4), 6, Tokens{7}));
  Restart();
  EXPECT_EQ(found_["a"], (Tokens{1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(JournalsTest, AFullDiskKeepsTheEarlierState) {
  Restart();
  ASSERT_TRUE(journals_->Append(Info("a", 3, 1), 0, Tokens{1, 2, 3}));
  faults_->SetSpace(folder_->Bytes() + 10);
  EXPECT_FALSE(journals_->Append(Info("a", 5, 2), 3, Tokens{4, 5}));
  EXPECT_EQ(folder_->Bytes(), journals_->bytes()) << "the part that was written is cut off";
  Restart();
  EXPECT_EQ(found_["a"], (Tokens{1, 2, 3}));
}

TEST_F(JournalsTest, SessionsThatDoNotFitDoNotKeepOthersFromTheSpaceThatIsLeft) {
  Restart();
  const Tokens big(1000, 7), small(10, 7);
  faults_->SetSpace(0);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_FALSE(journals_->Append(Info(name, 1000, 1), 0, big));
  }
  EXPECT_FALSE(journals_->Append(Info("d", 10, 1), 0, small));
  faults_->SetSpace(500);
  for (int call = 0; call < 3; ++call) {
    for (const auto& [tenant, name] : journals_->NextIncomplete(2)) {
      const Tokens& tokens = name == "d" ? small : big;
      journals_->Rewrite(Info(name, static_cast<int32_t>(tokens.size()), 1), tokens);
    }
  }
  EXPECT_TRUE(journals_->Complete({7, "d"}));
  EXPECT_THAT(journals_->NextIncomplete(2), ::testing::SizeIs(2));
  EXPECT_THAT(journals_->NextIncomplete(9), ::testing::SizeIs(3)) << "each once";
}

TEST_F(JournalsTest, AJournalOfManyChangesIsWrittenAnew) {
  Restart();
  Tokens tokens(100, 5);
  for (uint64_t turn = 1; turn < 2000; ++turn) {
    ASSERT_TRUE(journals_->Append(Info("a", 100, turn), 0, tokens));
  }
  EXPECT_LT(folder_->Bytes(), 128 << 10);
  Restart();
  EXPECT_EQ(found_["a"], tokens);
}

TEST_F(JournalsTest, TheLongestUnusedGoFirst) {
  Restart();
  journals_->Append(Info("a", 3, 3), 0, Tokens{1, 2, 3});
  journals_->Append(Info("b", 3, 1), 0, Tokens{1, 2, 3});
  journals_->Append(Info("c", 3, 2), 0, Tokens{1, 2, 3});
  journals_->DropOldest(1);
  EXPECT_FALSE(journals_->Complete({7, "b"}));
  EXPECT_TRUE(journals_->NextIncomplete(9).empty()) << "written again, it would be dropped again";
  EXPECT_FALSE(journals_->Renew(Info("b", 3, 1)));
  EXPECT_TRUE(journals_->NextIncomplete(9).empty());
  journals_->DropOldest(1);
  EXPECT_EQ(journals_->bytes(), folder_->Bytes());
  EXPECT_FALSE(journals_->Append(Info("b", 4, 9), 3, Tokens{4}));
  EXPECT_EQ(journals_->NextIncomplete(9).size(), 1u) << "it has changed";
  Restart();
  EXPECT_EQ(found_.size(), 1u);
  EXPECT_TRUE(found_.contains("a"));
}

TEST_F(JournalsTest, DamageIsPutAside) {
  Restart();
  journals_->Append(Info("a", 3, 3), 0, Tokens{1, 2, 3});
  journals_->Append(Info("b", 3, 1), 0, Tokens{1, 2, 3});
  folder_->files["1.tokens"][70] ^= 1;
  folder_->files["9.kv"] = "of no session";
  folder_->files["3.tokens.unfinished"] = "half";
  folder_->files["notes.txt"] = "not ours";
  Restart();
  EXPECT_EQ(found_.size(), 1u);
  EXPECT_EQ(damaged_, 1);
  EXPECT_EQ(folder_->files.size(), 3u);
  EXPECT_TRUE(folder_->files.contains("1.damaged"));
  EXPECT_TRUE(folder_->files.contains("notes.txt"));
  // A damaged journal's number is not given again.
  journals_->Append(Info("d", 3, 3), 0, Tokens{1, 2, 3});
  EXPECT_FALSE(folder_->files.contains("1.tokens"));
}

TEST_F(JournalsTest, AnotherModelsSessionsAreRefusedByName) {
  Restart();
  journals_->Append(Info("a", 3, 3), 0, Tokens{1, 2, 3});
  const auto before = folder_->files;
  const absl::Status status = ReadDirectory(*disk_, "other", 0x5678).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'demo' (0000000000001234)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'other' (0000000000005678)"));
  EXPECT_EQ(folder_->files, before);
}

// Only a lack of space is met by removing files: each failed write would cost KV files else.
TEST(DiskTest, ALackOfDescriptorsIsNoLackOfSpace) {
  const std::unique_ptr<Disk> disk = OpenDisk(::testing::TempDir());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = disk->Open("quire_disk_test", Disk::Mode::kCreate).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), ::testing::HasSubstr("open quire_disk_test"));
}

TEST(DiskTest, AFullDeviceIsALackOfSpace) {
  const auto file = OpenDisk("/dev")->Open("full", Disk::Mode::kAppend);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(absl::IsResourceExhausted((*file)->Append("x").status()));
}

TEST(DirectoryLockTest, OneServerUsesADirectory) {
  const std::string folder = ::testing::TempDir() + "/quire_lock/deep";
  absl::StatusOr<DirectoryLock> first = DirectoryLock::Take(folder);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = DirectoryLock::Take(folder).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second));
  EXPECT_THAT(std::string(second.message()), HasSubstr("another server uses " + folder));
  { const DirectoryLock moved = *std::move(first); }
  EXPECT_TRUE(DirectoryLock::Take(folder).ok());
  EXPECT_THAT(std::string(CheckSessionDirectory(folder + "/lock").message()),
              HasSubstr("is not a directory"));
  EXPECT_THAT(std::string(CheckSessionDirectory(folder + "/lock/below").message()),
              HasSubstr("cannot be made"));
  EXPECT_TRUE(CheckSessionDirectory(folder + "/new").ok());
}

}  // namespace
}  // namespace quire
