// The session directory under a server: each turn whose end a client has seen is there when the
// server comes back, whatever else the disk does; a disk that fails costs time and a metric.
// Covers server/session/archive/session_archive.cc, server/session/archive/disk.cc,
// server/session/archive/deadline_thread.cc, server/metrics/archive_metrics.cc
#include "server/session/archive/session_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  faults_->SetSpace(folder_->Bytes() + 10);
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
  ASSERT_TRUE(TestServer::Eventually([&] { return folder_->files.contains("1.tokens"); }));
  Restart();
  EXPECT_EQ(Position("a"), said.finished.position());
}

TEST_F(ArchiveTest, ADiskThatHangsDelaysATurnOnly) {
  Start();
  client_->Create("a");
  ASSERT_TRUE(client_->Say("a", "hello", 5).status.ok());
  faults_->Stop();
  StreamedOutput said;
  for (int turn = 0; turn < 3; ++turn) {
    said = client_->Say("a", "more", 5);
    ASSERT_TRUE(said.status.ok()) << said.status.error_message();
  }
  EXPECT_EQ(Metric("quire_session_turns_unsaved_total", ",reason=\"late\""), 3);
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
  ASSERT_TRUE(TestServer::Eventually([&] {
    const std::lock_guard lock(folder_->mutex);
    return folder_->Bytes() <= 4000;
  }));
  EXPECT_EQ(Position("s0"), 104u);
  Restart();
  EXPECT_EQ(Position("s19"), 104u);
  EXPECT_EQ(Position("s0"), ~0u);
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
