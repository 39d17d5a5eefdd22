// Export and Import over real gRPC: a server imports the file that another exported, and exports it
// again bit for bit. Bad files, foreign files and lost clients leave nothing behind.
// Covers server/session/session_transfer.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/session_client.h"

namespace quire {
namespace {

using Sessions = v1::Sessions::Stub;
using grpc::StatusCode;

TestServerOptions WithPages(int32_t num_pages = 64) {
  TestServerOptions options;
  options.num_pages = num_pages;
  options.ranks = 2;
  return options;
}

// A session of 62 tokens, 61 of them with KV. The server's arenas hold a known pattern for it.
void Converse(TestServer& server, SessionClient& client, const std::string& name) {
  client.Create(name);
  ASSERT_TRUE(client.Say(name, std::string(40, 'x'), 10).status.ok());
  ASSERT_EQ(client.Say(name, "y", 10).finished.position(), 62u);
  client.Do(&Sessions::Offload, name);
  ASSERT_TRUE(TestServer::Eventually([&] { return client.Get(name).host_tokens() == 61; }));
  server.FillPages();
}

// A server of a model with four KV heads.
TestServerOptions WithRanks(int ranks) {
  TestServerOptions options = WithPages();
  options.num_kv_heads = 4;
  options.ranks = ranks;
  return options;
}

// Pages whose bytes are those that were signed.
int CountIntact(const HostArena& arena) {
  int intact = 0;
  for (PageId page = 0; page < arena.shape().num_pages; ++page) intact += arena.Intact(page);
  return intact;
}

TEST(TransferTest, ASessionMovesWithItsKv) {
  TestServer server(WithPages());
  SessionClient client(server);
  Converse(server, client, "a");
  const std::string file = client.Export("a");
  ASSERT_TRUE(client.status.ok()) << client.status.error_message();
  EXPECT_GT(file.size(), 4u * 2 * 256);
  EXPECT_EQ(client.Get("a").position(), 62u);
  for (const size_t piece : {size_t{100}, size_t{1} << 20}) {
    TestServer other(WithPages());
    SessionClient there(other);
    v1::Session session = there.Import("b", file, piece);
    ASSERT_TRUE(there.status.ok()) << there.status.error_message();
    EXPECT_EQ(session.session_id(), "b");
    EXPECT_EQ(session.position(), 62u);
    EXPECT_EQ(session.host_tokens(), 61u);
    EXPECT_EQ(session.absent_tokens(), 1u);
    EXPECT_EQ(session.state(), v1::SESSION_STATE_HOST);
    EXPECT_EQ(there.Export("b"), file);
    const v1::Finished finished = there.Say("b", "and", 3).finished;
    EXPECT_EQ(finished.position(), 68u);
    EXPECT_EQ(finished.usage().prompt_tokens(), 65u);
    EXPECT_EQ(finished.residency().host_tokens() + finished.residency().recomputed_tokens(), 61u);
    EXPECT_TRUE(there.Close("b").ok());
    other.ExpectNothingLeft();
  }
  EXPECT_EQ(client.Say("a", "and", 3).finished.position(), 68u);
}

// Fewer ranks than KV heads, as many, and more: then neighbouring ranks hold the same head.
TEST(TransferTest, ASessionMovesBetweenServersOfAnyNumberOfRanks) {
  std::string file;
  for (const int ranks : {1, 2, 4, 8}) {
    TestServer server(WithRanks(ranks));
    SessionClient client(server);
    Converse(server, client, "a");
    const std::string exported = client.Export("a");
    ASSERT_TRUE(client.status.ok()) << client.status.error_message();
    if (file.empty()) file = exported;
    EXPECT_TRUE(exported == file) << ranks;
    TestServer other(WithRanks(ranks));
    SessionClient there(other);
    EXPECT_EQ(there.Import("b", file, 1000).host_tokens(), 61u) << there.status.error_message();
    other.ExpectEqualReplicas();
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(CountIntact(other.arena(rank)), 4) << "rank " << rank;
    }
    EXPECT_TRUE(there.Export("b") == file) << ranks;
    const v1::Residency residency = there.Say("b", "and", 3).finished.residency();
    EXPECT_EQ(residency.host_tokens(), 61u);
    EXPECT_EQ(residency.outcome(), v1::Residency::OUTCOME_RESTORED);
  }
}

TEST(TransferTest, ExportsKvOfTheDeviceThroughTheHost) {
  TestServer server(WithPages());
  SessionClient client(server);
  client.Create("a");
  ASSERT_TRUE(client.Say("a", std::string(40, 'x'), 10).status.ok());
  EXPECT_EQ(client.Get("a").host_tokens(), 0u);
  const std::string file = client.Export("a");
  ASSERT_TRUE(client.status.ok());
  TestServer other(WithPages());
  SessionClient there(other);
  EXPECT_EQ(there.Import("a", file).host_tokens(), 50u);
}

// All calls together need more memory than the server gives to gRPC: a leaked call would be seen.
TEST(TransferTest, CallsThatHaveEndedHoldNoMemory) {
  TestServer server(WithPages());
  SessionClient client(server);
  Converse(server, client, "a");
  const std::string file = client.Export("a");
  const std::string junk(size_t{1} << 20, 'j');
  for (int i = 0; i < 300; ++i) {
    client.Import("b", junk, junk.size());
    ASSERT_EQ(client.status.error_code(), StatusCode::INVALID_ARGUMENT)
        << i << ": " << client.status.error_message();
  }
  client.Import("b", file);
  EXPECT_TRUE(client.status.ok()) << client.status.error_message();
  client.Import("c", std::string(junk.size() + 1, 'j'), junk.size() + 1);
  EXPECT_THAT(client.status.error_message(), ::testing::HasSubstr("at most 1 MiB"));
}

TEST(TransferTest, WithoutHostMemoryTokensTravel) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  ASSERT_TRUE(client.Say("a", "hello", 5).status.ok());
  const std::string file = client.Export("a");
  ASSERT_TRUE(client.status.ok()) << client.status.error_message();
  TestServer other;
  SessionClient there(other);
  const v1::Session session = there.Import("a", file);
  ASSERT_TRUE(there.status.ok()) << there.status.error_message();
  EXPECT_EQ(session.position(), 11u);
  EXPECT_EQ(session.absent_tokens(), 11u);
  EXPECT_EQ(there.Say("a", "more", 2).finished.residency().outcome(),
            v1::Residency::OUTCOME_RECOMPUTED);
  // An empty session as well.
  client.Create("empty");
  there.Import("empty", client.Export("empty"));
  EXPECT_TRUE(there.status.ok()) << there.status.error_message();
}

// If the host has no room for all KV, the rest is imported as tokens.
TEST(TransferTest, AFullHostImportsTheKvThatFits) {
  TestServer server(WithPages());
  SessionClient client(server);
  Converse(server, client, "a");
  const std::string file = client.Export("a");
  TestServer other(WithPages(2));
  SessionClient there(other);
  const v1::Session session = there.Import("a", file);
  ASSERT_TRUE(there.status.ok()) << there.status.error_message();
  EXPECT_EQ(session.host_tokens(), 32u);
  EXPECT_EQ(session.position(), 62u);
  EXPECT_EQ(there.Say("a", "and", 3).finished.position(), 68u);
}

TEST(TransferTest, BadFilesAreRefusedAndLeaveNothing) {
  TestServer server(WithPages());
  SessionClient client(server);
  Converse(server, client, "a");
  const std::string file = client.Export("a");
  TestServer other(WithPages(8));
  SessionClient there(other);
  const auto expect = [&](const std::string& bytes, StatusCode code, const std::string& reason) {
    there.Import("b", bytes);
    EXPECT_EQ(there.status.error_code(), code);
    EXPECT_EQ(Reason(there.status), reason) << there.status.error_message();
    EXPECT_TRUE(TestServer::Eventually([&] { return there.List().sessions_size() == 0; }));
  };
  for (size_t length = 1; length < file.size(); length += 97) {
    expect(file.substr(0, length), StatusCode::INVALID_ARGUMENT, "SESSION_FILE_DAMAGED");
  }
  for (size_t at = 20; at < file.size(); at += 89) {
    std::string flipped = file;
    flipped[at] = static_cast<char>(flipped[at] ^ 16);
    expect(flipped, StatusCode::INVALID_ARGUMENT, "SESSION_FILE_DAMAGED");
  }
  expect("", StatusCode::INVALID_ARGUMENT, "SESSION_FILE_DAMAGED");
  expect("this is a text, not a session", StatusCode::INVALID_ARGUMENT, "NOT_A_SESSION_FILE");
  expect(file + "!", StatusCode::INVALID_ARGUMENT, "SESSION_FILE_DAMAGED");
  std::string version = file;
  version[8] = 2;
  expect(version, StatusCode::FAILED_PRECONDITION, "SESSION_FILE_MISMATCH");
  // All pages are available for a valid file.
  EXPECT_EQ(there.Import("b", file).host_tokens(), 61u) << there.status.error_message();
  there.Import("b", file);
  EXPECT_EQ(Reason(there.status), "SESSION_EXISTS");
  EXPECT_EQ(there.Get("b").position(), 62u);
}

TEST(TransferTest, FilesOfOtherModelsAndShapesAreRefused) {
  TestServer server(WithPages());
  SessionClient client(server);
  Converse(server, client, "a");
  const std::string file = client.Export("a");
  TestServerOptions model = WithPages();
  model.model_identity = 2;
  TestServerOptions heads = WithPages();
  heads.num_kv_heads = 4;
  TestServerOptions context = WithPages();
  context.max_model_len = 48;
  for (const TestServerOptions& options : {model, heads, context}) {
    TestServer other(options);
    SessionClient there(other);
    there.Import("b", file);
    EXPECT_EQ(there.status.error_code(), StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(Reason(there.status), "SESSION_FILE_MISMATCH");
    EXPECT_EQ(there.List().sessions_size(), 0);
  }
}

TEST(TransferTest, TheFirstMessageHasTheNameAndOptions) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  const std::string file = client.Export("a");
  const auto import = [&](const v1::ImportSessionRequest& first,
                          const v1::ImportSessionRequest& second) {
    grpc::ClientContext context;
    v1::Session session;
    const auto writer = server.sessions().Import(&context, &session);
    writer->Write(first);
    writer->Write(second);
    writer->WritesDone();
    client.status = writer->Finish();
    return session;
  };
  v1::ImportSessionRequest first;
  first.mutable_options()->set_ttl_seconds(77);
  v1::ImportSessionRequest second;
  second.mutable_chunk()->set_data(file);
  const v1::Session session = import(first, second);
  ASSERT_TRUE(client.status.ok()) << client.status.error_message();
  EXPECT_EQ(session.session_id().size(), 34u);
  EXPECT_EQ(session.options().ttl_seconds(), 77);
  second.set_session_id("late");
  import(first, second);
  EXPECT_EQ(ViolatedField(client.status), "session_id");
  first.mutable_options()->set_ttl_seconds(-1);
  import(first, second);
  EXPECT_EQ(ViolatedField(client.status), "options.ttl_seconds");
}

// A client that goes away in the middle of an import or of an export.
TEST(TransferTest, LostClientsLeaveNothingBehind) {
  TestServer server(WithPages(8));
  SessionClient client(server);
  Converse(server, client, "a");
  const std::string file = client.Export("a");
  TestServer other(WithPages(4));
  SessionClient there(other);
  for (size_t length = 0; length < file.size(); length += 151) {
    grpc::ClientContext context;
    v1::Session session;
    const auto writer = other.sessions().Import(&context, &session);
    v1::ImportSessionRequest request;
    request.set_session_id("b");
    request.mutable_chunk()->set_data(file.substr(0, length));
    writer->Write(request);
    if (length % 2 == 0) {
      EXPECT_LE(there.List().sessions_size(), 1);  // and time passes
    }
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), StatusCode::CANCELLED);
    EXPECT_TRUE(TestServer::Eventually([&] { return there.List().sessions_size() == 0; }));
  }
  // Also in front of the end of a whole file.
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    v1::Session session;
    const auto writer = other.sessions().Import(&context, &session);
    v1::ImportSessionRequest request;
    request.set_session_id("b");
    request.mutable_chunk()->set_data(file);
    writer->Write(request);
    there.List();  // and time passes
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), StatusCode::CANCELLED);
    ASSERT_TRUE(TestServer::Eventually([&] { return there.List().sessions_size() == 0; }));
  }
  EXPECT_EQ(there.Import("b", file).host_tokens(), 61u) << there.status.error_message();
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    v1::ExportSessionRequest request;
    request.set_session_id("a");
    const auto reader = server.sessions().Export(&context, request);
    v1::SessionChunk chunk;
    if (round % 2 == 1) reader->Read(&chunk);
    context.TryCancel();
    reader->Finish();
    EXPECT_TRUE(TestServer::Eventually(
        [&] { return client.Get("a").state() != v1::SESSION_STATE_ACTIVE; }));
  }
  EXPECT_EQ(client.Export("a"), file);
  server.ExpectNothingLeft();
}

TEST(TransferTest, TooManyAtOnceAreRefused) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  const std::string file = client.Export("a");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::ImportSessionRequest>>> writers;
  v1::Session session;
  for (int i = 0; i < 64; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    writers.push_back(server.sessions().Import(contexts.back().get(), &session));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().open_streams() == 64; }));
  const auto imports = [&server](int count) {
    const std::string labels = "{model_name=\"test-model\",direction=\"import\"} ";
    const std::string line = "quire_session_transfers" + labels + std::to_string(count) + "\n";
    return server.Metrics().find(line) != std::string::npos;
  };
  EXPECT_TRUE(imports(64));
  client.Export("a");
  EXPECT_EQ(client.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Reason(client.status), "TOO_MANY_STREAMS");
  EXPECT_GT(RetrySeconds(client.status), 0);
  writers.back()->WritesDone();
  EXPECT_EQ(Reason(writers.back()->Finish()), "SESSION_FILE_DAMAGED");
  writers.pop_back();
  EXPECT_TRUE(TestServer::Eventually([&] { return client.Export("a") == file; }));
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& writer : writers) writer->Finish();
  server.ExpectNothingLeft();
  EXPECT_TRUE(TestServer::Eventually([&] { return imports(0); }));
}

TEST(TransferTest, ASlowTransferEnds) {
  TestServerOptions options = WithPages();
  options.front.default_deadline_seconds = 0.2;
  TestServer server(options);
  grpc::ClientContext context;
  v1::Session session;
  const auto writer = server.sessions().Import(&context, &session);
  EXPECT_EQ(writer->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace
}  // namespace quire
