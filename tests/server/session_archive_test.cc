// The session directory under a server: each turn whose end a client has seen is there when the
// server comes back, whatever else the disk does; a disk that fails costs time and a metric.
// Covers server/session/archive/session_archive.cc, server/session/archive/disk.cc,
// server/session/archive/deadline_thread.cc, server/session/archive/engine_call.cc,
// server/session/archive/kv_file_reader.cc, server/session/archive/kv_files.cc,
// server/session/archive/kv_recalls.cc, server/session/archive/kv_saver.cc,
// server/session/archive/work_threads.cc, server/metrics/archive_metrics.cc
#include "server/session/archive/session_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "tests/server/memory_disk.h"
#include "tests/server/session_client.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Sessions = v1::Sessions::Stub;

class ArchiveTest : public ::testing::Test {
 protected:
  // A server ends only when its disk goes on.
  ~ArchiveTest() override {
    if (faults_ != nullptr) faults_->GoOn();
  }
  void Start() {
    faults_ = std::make_shared<DiskFaults>();
    options_.session_dir = directory_;
    options_.session_disk = std::make_shared<MemoryDisk>(folder_, faults_);
    server_.emplace(options_);
    client_.emplace(*server_);
  }
  // The server ends, and another one starts with its directory.
  void Restart() {
    client_.reset();
    server_.reset();
    Start();
  }
  // The server dies: nothing that is not on the disk by now will be there.
  void Kill() {
    const auto left = std::make_shared<MemoryFolder>();
    {
      const std::lock_guard lock(folder_->mutex);
      left->files = folder_->files;
    }
    folder_ = left;
    Restart();
  }
  int64_t Bytes() {
    const std::lock_guard lock(folder_->mutex);
    return folder_->Bytes();
  }
  uint32_t Position(const SessionName& name) {
    const v1::Session session = client_->Get(name);
    return client_->status.ok() ? session.position() : ~0u;
  }
  double Metric(const std::string& name, const std::string& labels = "") {
    const std::string page = server_->Metrics();
    const std::string line = "\n" + name + "{model_name=\"test-model\"" + labels + "} ";
    const size_t at = page.find(line);
    return at == std::string::npos ? -1 : std::stod(page.substr(at + line.size()));
  }

  const std::string directory_ = ::testing::TempDir() + "/quire_archive_" +
                                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
  TestServerOptions options_;
  std::shared_ptr<MemoryFolder> folder_ = std::make_shared<MemoryFolder>();
  std::shared_ptr<DiskFaults> faults_;
  std::optional<TestServer> server_;
  std::optional<SessionClient> client_;
};

TEST_F(ArchiveTest, SessionsComeBack) {
  Start();
  v1::CreateSessionRequest create;
  create.set_session_id("a");
  create.mutable_options()->set_ttl_seconds(500);
  create.mutable_options()->set_retain_priority(7);
  client_->Call(&Sessions::Create, create);
  ASSERT_TRUE(client_->Say("a", "hello", 5).status.ok());
  EXPECT_EQ(client_->Say("a", "more", 5).finished.position(), 20u);
  client_->Create("empty");
  client_->Fork("a", "fork");
  client_->Truncate("fork", 7);
  client_->Create("closed");
  ASSERT_TRUE(client_->Close("closed").ok());
  const std::string file = client_->Export("a");
  client_->Import("imported", file);
  // Operations other than turns are not awaited, a turn behind them is.
  client_->Create("last");
  ASSERT_TRUE(client_->Say("last", "x", 1).status.ok());
  Kill();
  const v1::Session session = client_->Get("a");
  EXPECT_EQ(session.position(), 20u);
  EXPECT_EQ(session.turns(), 2u);
  EXPECT_EQ(session.options().ttl_seconds(), 500);
  EXPECT_EQ(session.options().retain_priority(), 7);
  EXPECT_EQ(session.absent_tokens(), 20u);
  EXPECT_LE(session.expires_in_seconds(), 500);
  EXPECT_GT(session.expires_in_seconds(), 400);
  EXPECT_EQ(session.state(), v1::SESSION_STATE_DROPPED);
  EXPECT_EQ(Position("empty"), 0u);
  EXPECT_EQ(Position("fork"), 7u);
  EXPECT_EQ(Position("closed"), ~0u);
  EXPECT_EQ(Position("imported"), 20u);
  EXPECT_EQ(client_->Export("a"), client_->Export("imported"));
  EXPECT_EQ(Metric("quire_session_adoptions_total", ",outcome=\"adopted\""), 5);
  EXPECT_EQ(client_->Say("a", "again", 5).finished.position(), 30u);
  Kill();
  EXPECT_EQ(Position("a"), 30u);
}

TEST_F(ArchiveTest, EveryAnsweredTurnIsThere) {
  Start();
  uint32_t position = 0;
  for (int turn = 0; turn < 40; ++turn) {
    if (turn == 0) client_->Create("a");
    const StreamedOutput said = client_->Say("a", "hi", 3);
    ASSERT_TRUE(said.status.ok()) << said.status.error_message();
    position = said.finished.position();
    if (turn % 4 == 0) Kill();
    ASSERT_EQ(Position("a"), position) << turn;
  }
  EXPECT_EQ(Metric("quire_session_turns_unsaved_total", ",reason=\"late\""), 0);
}

// The engine may be ahead of the stop string: the tokens behind it are cut off before the end.
TEST_F(ArchiveTest, ATurnCutByAStopStringIsThereAsCut) {
  Start();
  for (int turn = 0; turn < 10; ++turn) {
    v1::GenerateRequest request;
    request.set_text("hi");
    request.set_session_id("a");
    request.set_create_session(true);
    request.mutable_stop()->set_max_tokens(100);
    request.mutable_stop()->add_stop("cd");
    const StreamedOutput said = client_->Turn(request);
    ASSERT_TRUE(said.status.ok()) << said.status.error_message();
    Kill();
    ASSERT_EQ(Position("a"), said.finished.position());
  }
}

TEST_F(ArchiveTest, AFailedTurnLeavesTheSessionAsItWas) {
  Start();
  client_->Create("a");
  const uint32_t position = client_->Say("a", "hello", 5).finished.position();
  server_->gate().SpoilSamples();
  EXPECT_FALSE(client_->Say("a", "more", 5).status.ok());
  Kill();
  EXPECT_EQ(Position("a"), position);
}

TEST_F(ArchiveTest, AFullDiskCostsNoTurn) {
  Start();
  client_->Create("a");
  ASSERT_TRUE(client_->Say("a", "hello", 5).status.ok());
  faults_->SetSpace(Bytes() + 10);
  for (int turn = 0; turn < 5; ++turn) ASSERT_TRUE(client_->Say("a", "more", 5).status.ok());
  EXPECT_EQ(Metric("quire_session_turns_unsaved_total", ",reason=\"failed\""), 5);
  EXPECT_GE(Metric("quire_session_dir_failures_total", ",operation=\"write\""), 1);
  // With space again the session is written whole, also without another turn.
  faults_->SetSpace(int64_t{1} << 40);
  const uint32_t position = Position("a");
  ASSERT_TRUE(TestServer::Eventually([&] {
    const std::lock_guard lock(folder_->mutex);
    const absl::StatusOr<Journal> journal = ReadJournal(folder_->files["1.tokens"]);
    return journal.ok() && journal->tokens.size() == position;
  }));
  Kill();
  EXPECT_EQ(Position("a"), position);
}

TEST_F(ArchiveTest, ABrokenDiskCostsNoTurn) {
  Start();
  faults_->Break(true);
  client_->Create("a");
  ASSERT_TRUE(client_->Say("a", "hello", 5).status.ok());
  faults_->Break(false);
  const StreamedOutput said = client_->Say("a", "more", 5);
  ASSERT_TRUE(TestServer::Eventually([&] {
    const std::lock_guard lock(folder_->mutex);
    return folder_->files.contains("1.tokens");
  }));
  Restart();
  EXPECT_EQ(Position("a"), said.finished.position());
}

TEST_F(ArchiveTest, ADiskThatHangsDelaysATurnOnly) {
  Start();
  client_->Create("a");
  ASSERT_TRUE(client_->Say("a", "hello", 5).status.ok());
  const char late[] = ",reason=\"late\"";
  const double before = Metric("quire_session_turns_unsaved_total", late);
  faults_->Stop();
  StreamedOutput said;
  for (int turn = 0; turn < 3; ++turn) {
    said = client_->Say("a", "more", 5);
    ASSERT_TRUE(said.status.ok()) << said.status.error_message();
  }
  EXPECT_EQ(Metric("quire_session_turns_unsaved_total", late), before + 3);
  faults_->GoOn();
  Restart();
  EXPECT_EQ(Position("a"), said.finished.position());
}

TEST_F(ArchiveTest, AnEndedLeaseIsNotAdopted) {
  Start();
  v1::CreateSessionRequest create;
  create.set_session_id("a");
  create.mutable_options()->set_ttl_seconds(0.001);
  client_->Call(&Sessions::Create, create);
  ASSERT_TRUE(TestServer::Eventually([&] { return Position("a") == ~0u; }));
  ASSERT_TRUE(TestServer::Eventually([&] {
    const std::lock_guard lock(folder_->mutex);
    return folder_->files.empty();
  }));
}

// Only the longest unused sessions lose their journals, and they go on in this server.
TEST_F(ArchiveTest, TheDirectoryKeepsWithinItsSize) {
  options_.session_dir_size = 4000;
  Start();
  for (int i = 0; i < 20; ++i) {
    const std::string name = "s" + std::to_string(i);
    client_->Create(name);
    ASSERT_TRUE(client_->Say(name, std::string(100, 'x'), 3).status.ok());
  }
  ASSERT_TRUE(TestServer::Eventually([&] { return Bytes() <= 4000; }));
  EXPECT_EQ(Position("s0"), 104u);
  Restart();
  EXPECT_EQ(Position("s19"), 104u);
  EXPECT_EQ(Position("s0"), ~0u);
}

// --- KV.

class KvArchiveTest : public ArchiveTest {
 protected:
  KvArchiveTest() {
    options_.num_pages = 64;
    options_.ranks = 2;
    options_.sessions.default_idle_offload_seconds = 0;
  }
  // A session of 62 tokens whose KV is in a file; the arenas have a known pattern in its pages.
  void Converse(const SessionName& name) {
    client_->Create(name);
    ASSERT_TRUE(client_->Say(name, std::string(40, 'x'), 10).status.ok());
    ASSERT_EQ(client_->Say(name, "y", 10).finished.position(), 62u);
    AwaitSaved(1);
  }
  void AwaitSaved(size_t files) {
    ASSERT_TRUE(TestServer::Eventually([&] {
      const std::lock_guard lock(folder_->mutex);
      return std::ranges::count_if(folder_->files, [](const auto& file) {
               return file.first.ends_with(kKvSuffix);
             }) == static_cast<int64_t>(files);
    }));
    // The table knows of the file a moment later.
    ASSERT_TRUE(TestServer::Eventually(
        [&] { return Metric("quire_session_dir_bytes", ",file=\"kv\"") > 0; }));
  }
  // A turn, or a request without a session, that fails when it takes too long.
  StreamedOutput SayInTime(const SessionName& name, const std::string& text) {
    v1::GenerateRequest request = AskFor(5);
    request.set_text(text);
    if (!name.empty()) request.set_session_id(name);
    grpc::ClientContext context;
    context.AddMetadata(kTestTenant, "0");
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return Stream(server_->inference(), request, &context);
  }
  double Recalls(const std::string& outcome) {
    return Metric("quire_session_recalls_total", ",outcome=\"" + outcome + "\"");
  }
  double Saves(const std::string& outcome) {
    return Metric("quire_session_saves_total", ",outcome=\"" + outcome + "\"");
  }
  void AwaitCovered(const SessionName& name, uint32_t tokens) {
    ASSERT_TRUE(TestServer::Eventually([&] {
      const std::lock_guard lock(folder_->mutex);
      for (const auto& [file, bytes] : folder_->files) {
        if (!file.ends_with(kKvSuffix)) continue;
        SessionFileReader reader(Limits());
        std::string_view left = bytes;
        if (reader.Take(&left).ok() && reader.AwaitsPages() &&
            reader.header().kv_tokens == static_cast<int32_t>(tokens)) {
          return true;
        }
      }
      return false;
    })) << name;
  }
  static SessionFileReader::Limits Limits() {
    SessionFileReader::Limits limits{.max_tokens = 2048, .vocab_size = kTestVocab};
    limits.shape = {.model = "test-model",
                    .model_identity = 1,
                    .kv_dtype = "float32",
                    .num_layers = 1,
                    .num_kv_heads = 2,
                    .head_dim = 2,
                    .block_size = 16,
                    .block_bytes = 512};
    return limits;
  }
};

// The blocks of an exported session of 61 to 80 tokens with KV that are full.
std::string FullBlocks(const std::string& file, int32_t blocks) {
  const size_t block = 512 + 8;
  const size_t kv = static_cast<size_t>(blocks) * block + 16;
  return file.size() < kv ? "" : file.substr(file.size() - kv, 3 * block);
}

TEST_F(KvArchiveTest, AKilledServersKvComesBackForTheNextTurn) {
  options_.sessions.default_idle_offload_seconds = 3600;
  Start();
  client_->Create("a");
  ASSERT_TRUE(client_->Say("a", std::string(40, 'x'), 10).status.ok());
  ASSERT_EQ(client_->Say("a", "y", 10).finished.position(), 62u);
  client_->Do(&Sessions::Offload, "a");
  ASSERT_TRUE(TestServer::Eventually([&] { return client_->Get("a").host_tokens() == 61; }));
  server_->FillPages();
  const std::string before = FullBlocks(client_->Export("a"), 4);
  server_->archive().HandOver(60);
  Kill();
  EXPECT_EQ(client_->Get("a").host_tokens(), 0u);
  const v1::Finished finished = client_->Say("a", "and", 3).finished;
  EXPECT_EQ(finished.position(), 68u);
  EXPECT_EQ(finished.residency().outcome(), v1::Residency::OUTCOME_RESTORED);
  EXPECT_EQ(finished.residency().host_tokens(), 61u);
  EXPECT_EQ(Recalls("recalled"), 1);
  EXPECT_GT(Metric("quire_session_dir_read_bytes_total"), 2048);
  // Byte for byte: the emulated device gives back what it was given.
  const std::string after = FullBlocks(client_->Export("a"), 5);
  EXPECT_TRUE(!before.empty() && after == before);
}

// One rank, as many ranks as the model has KV heads, and more.
TEST_F(KvArchiveTest, KvComesBackToAServerOfAnotherNumberOfRanks) {
  options_.sessions.default_idle_offload_seconds = 3600;
  options_.num_kv_heads = 2;
  options_.ranks = 1;
  Start();
  client_->Create("a");
  ASSERT_TRUE(client_->Say("a", std::string(40, 'x'), 22).status.ok());
  client_->Do(&Sessions::Offload, "a");
  ASSERT_TRUE(TestServer::Eventually([&] { return client_->Get("a").host_tokens() == 62; }));
  server_->FillPages();
  uint32_t kv_tokens = 62;
  const std::string before = FullBlocks(client_->Export("a"), 4);
  for (const int ranks : {2, 4, 1, 4, 2}) {
    server_->archive().HandOver(60);
    options_.ranks = ranks;
    Kill();
    const v1::Finished finished = client_->Say("a", "and", 3).finished;
    EXPECT_EQ(finished.residency().outcome(), v1::Residency::OUTCOME_RESTORED) << ranks;
    EXPECT_EQ(finished.residency().host_tokens(), kv_tokens);
    EXPECT_EQ(Recalls("recalled"), 1);
    kv_tokens = finished.position() - 1;
    const auto blocks = static_cast<int32_t>((kv_tokens + 15) / 16);
    const std::string after = FullBlocks(client_->Export("a"), blocks);
    EXPECT_TRUE(!before.empty() && after == before) << ranks;
    server_->ExpectEqualReplicas();
  }
}

TEST_F(KvArchiveTest, ASessionThatNeedsNothingWaitsForNothing) {
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  faults_->Stop();
  EXPECT_EQ(client_->Say("a", "and", 3).finished.residency().recomputed_tokens(), 0u);
  faults_->GoOn();
  EXPECT_EQ(Recalls("recalled") + Recalls("late") + Recalls("failed"), 0);
}

TEST_F(KvArchiveTest, DamagedKvIsComputedAgain) {
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  for (const size_t at : {size_t{40}, size_t{700}, size_t{2000}}) {
    {
      const std::lock_guard lock(folder_->mutex);
      ASSERT_GT(folder_->files["1.kv"].size(), at);
      folder_->files["1.kv"][at] ^= 1;
    }
    Kill();
    const StreamedOutput said = client_->Say("a", "and", 3);
    ASSERT_TRUE(said.status.ok()) << said.status.error_message();
    EXPECT_EQ(said.finished.residency().outcome(), v1::Residency::OUTCOME_RECOMPUTED);
    EXPECT_EQ(Recalls("damaged"), 1);
    AwaitCovered("a", said.finished.position() - 1);
  }
}

TEST_F(KvArchiveTest, AShortFileIsComputedAgain) {
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  for (const double share : {0.0, 0.1, 0.5, 0.99}) {
    {
      const std::lock_guard lock(folder_->mutex);
      std::string& file = folder_->files["1.kv"];
      file.resize(static_cast<size_t>(share * static_cast<double>(file.size())));
    }
    Kill();
    const StreamedOutput said = client_->Say("a", "and", 3);
    ASSERT_TRUE(said.status.ok()) << said.status.error_message();
    EXPECT_EQ(said.finished.residency().outcome(), v1::Residency::OUTCOME_RECOMPUTED);
    AwaitCovered("a", said.finished.position() - 1);
  }
}

TEST_F(KvArchiveTest, ACutSessionGetsTheBeginningBack) {
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  ASSERT_EQ(client_->Truncate("a", 40).position(), 40u);
  client_->Create("behind");
  ASSERT_TRUE(client_->Say("behind", "x", 1).status.ok());
  Kill();
  const v1::Finished finished = client_->Say("a", "and", 3).finished;
  EXPECT_EQ(finished.residency().host_tokens(), 40u);
  EXPECT_EQ(finished.residency().recomputed_tokens(), 0u);
}

// The third tier of a server that lives: the host has dropped what the directory has.
TEST_F(KvArchiveTest, KvThatTheHostDroppedComesBack) {
  options_.num_pages = 5;
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  client_->Do(&Sessions::Offload, "a");
  ASSERT_TRUE(TestServer::Eventually([&] { return client_->Get("a").device_tokens() == 0; }));
  client_->Create("b");
  ASSERT_TRUE(client_->Say("b", std::string(50, 'b'), 10).status.ok());
  // The directory hears of it when the engine has noticed; the end of a turn comes behind.
  ASSERT_TRUE(
      TestServer::Eventually([&] { return Metric("quire_sessions", ",state=\"DROPPED\"") == 1; }));
  ASSERT_LT(client_->Get("a").host_tokens(), 61u);
  client_->Create("c");
  ASSERT_TRUE(client_->Say("c", "c", 1).status.ok());
  // A page whose KV is being saved makes no room: a recall then gets fewer tokens.
  AwaitSaved(3);
  server_->archive().HandOver(60);
  const v1::Finished finished = client_->Say("a", "and", 3).finished;
  EXPECT_EQ(finished.residency().recomputed_tokens(), 0u);
  EXPECT_EQ(finished.residency().host_tokens(), 61u);
  EXPECT_EQ(Recalls("recalled"), 1);
}

// Ends a server in order: the next one has all KV, of sessions too that were never offloaded.
TEST_F(KvArchiveTest, ADrainHandsTheSessionsOver) {
  options_.sessions.default_idle_offload_seconds = 3600;
  Start();
  for (const char* name : {"a", "b", "c"}) {
    client_->Create(name);
    ASSERT_TRUE(client_->Say(name, std::string(40, name[0]), 10).status.ok());
  }
  EXPECT_EQ(Saves("saved"), 0);
  server_->archive().HandOver(60);
  EXPECT_EQ(Saves("saved"), 3);
  Kill();
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(client_->Say(name, "and", 3).finished.residency().host_tokens(), 50u);
  }
}

TEST_F(KvArchiveTest, TheLongestUnusedKvGoesFirst) {
  options_.session_dir_size = 12'000;
  Start();
  for (int i = 0; i < 8; ++i) {
    const std::string name = "s" + std::to_string(i);
    client_->Create(name);
    ASSERT_TRUE(client_->Say(name, std::string(40, static_cast<char>('a' + i)), 10).status.ok());
    ASSERT_TRUE(TestServer::Eventually([&] { return Saves("saved") == i + 1; }));
  }
  {
    const std::lock_guard lock(folder_->mutex);
    EXPECT_LE(folder_->Bytes(), 12'000);
  }
  Kill();
  EXPECT_EQ(Metric("quire_session_adoptions_total", ",outcome=\"adopted\""), 8);
  EXPECT_EQ(client_->Say("s7", "x", 1).finished.residency().host_tokens(), 50u);
  EXPECT_EQ(client_->Say("s0", "x", 1).finished.residency().host_tokens(), 0u);
}

TEST_F(KvArchiveTest, AFullDiskLosesKvBeforeTokens) {
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  faults_->SetSpace(Bytes() + 10);
  const StreamedOutput said = client_->Say("a", "more", 5);
  ASSERT_TRUE(said.status.ok());
  EXPECT_EQ(Metric("quire_session_turns_unsaved_total", ",reason=\"failed\""), 0);
  Kill();
  EXPECT_EQ(Position("a"), said.finished.position());
}

// Reading that takes longer than computing is given up, and nothing is left of it.
TEST_F(KvArchiveTest, ASlowDiskDoesNotHoldATurnBack) {
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  Kill();
  faults_->StopReads();
  const StreamedOutput said = client_->Say("a", "and", 3);
  ASSERT_TRUE(said.status.ok()) << said.status.error_message();
  EXPECT_EQ(said.finished.position(), 68u);
  EXPECT_EQ(said.finished.residency().outcome(), v1::Residency::OUTCOME_RECOMPUTED);
  faults_->GoOn();
  EXPECT_TRUE(TestServer::Eventually([&] { return Recalls("late") == 1; }));
  EXPECT_TRUE(client_->Close("a").ok());
  server_->ExpectNothingLeft();
}

// The thread that saves KV waits for room; turns, requests without a session and the scheduler
// thread do not.
TEST_F(KvArchiveTest, ADirectoryAtItsSizeOnADiskThatHangsDelaysATurnOnly) {
  options_.session_dir_size = 4000;  // one file with KV
  Start();
  for (const char* name : {"a", "b", "c"}) client_->Create(name);
  ASSERT_TRUE(client_->Say("a", std::string(40, 'a'), 10).status.ok());
  AwaitSaved(1);
  faults_->StopRemovals();
  ASSERT_TRUE(client_->Say("b", std::string(40, 'b'), 10).status.ok());
  ASSERT_TRUE(TestServer::Eventually([&] { return faults_->removals() == 1; }));
  faults_->Stop();
  for (int turn = 0; turn < 3; ++turn) {
    const StreamedOutput said = SayInTime("c", "more");
    ASSERT_TRUE(said.status.ok()) << said.status.error_message();
  }
  const StreamedOutput said = SayInTime("", "hello");
  ASSERT_TRUE(said.status.ok()) << said.status.error_message();
  faults_->GoOn();
  ASSERT_TRUE(TestServer::Eventually([&] { return Saves("saved") >= 2; }));
}

TEST_F(KvArchiveTest, AClosedSessionLeavesNoFile) {
  Start();
  Converse("a");
  AwaitCovered("a", 61);
  ASSERT_TRUE(client_->Close("a").ok());
  EXPECT_TRUE(TestServer::Eventually([&] {
    const std::lock_guard lock(folder_->mutex);
    return folder_->files.empty();
  }));
}

// The server dies at each change of the folder in turn, also while it writes KV.
TEST_F(KvArchiveTest, ADeathAtAnyWriteLosesNoAnsweredTurn) {
  for (int64_t operation = 0; operation < 40; ++operation) {
    folder_ = std::make_shared<MemoryFolder>();
    Start();
    uint32_t position = 0;
    client_->Create("a");
    faults_->DieAt(operation, 0.5);
    for (int turn = 0; turn < 6; ++turn) {
      const double lost = Metric("quire_session_turns_unsaved_total", ",reason=\"failed\"");
      const StreamedOutput said = client_->Say("a", std::string(20, 'x'), 3);
      ASSERT_TRUE(said.status.ok());
      if (Metric("quire_session_turns_unsaved_total", ",reason=\"failed\"") > lost) break;
      position = said.finished.position();
    }
    // On a busy machine a turn may end before it is saved, which is no fault of the directory.
    const bool late = Metric("quire_session_turns_unsaved_total", ",reason=\"late\"") > 0;
    Kill();
    const uint32_t found = Position("a");
    EXPECT_TRUE(late || found == position || (position == 0 && found == ~0u))
        << operation << ": " << found << " instead of " << position;
    ASSERT_TRUE(client_->Close("a").ok() || position == 0 || late);
  }
}

TEST_F(ArchiveTest, ARealDirectoryWorksToo) {
  std::filesystem::remove_all(directory_);
  options_.session_dir = directory_ + "/made/here";
  for (int turn = 1; turn <= 3; ++turn) {
    TestServer server(options_);
    SessionClient client(server);
    v1::GenerateRequest request;
    request.set_text("hello");
    request.set_session_id("a");
    request.set_create_session(true);
    request.mutable_stop()->set_max_tokens(4);
    EXPECT_EQ(client.Turn(request).finished.position(), static_cast<uint32_t>(1 + 9 * turn));
  }
  std::filesystem::remove_all(directory_);
}

}  // namespace
}  // namespace quire
