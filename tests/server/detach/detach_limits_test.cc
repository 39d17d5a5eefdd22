// Limits of detached requests: tenants, time, memory, aborts and drains.
// Covers server/detach/detach_metrics.cc and server/detach/kept_answers.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

v1::GenerateRequest Detachable(uint32_t tokens, const std::string& id, double seconds = 60) {
  v1::GenerateRequest request = AskFor(tokens);
  request.set_request_id(id);
  request.set_detach_seconds(seconds);
  return request;
}

struct Attached {
  grpc::Status status;
  std::string text;
};

Attached Attach(TestServer& server, const std::string& id, uint32_t after_tokens = 0,
                const std::string& tenant = "") {
  grpc::ClientContext context;
  if (!tenant.empty()) context.AddMetadata(kTestTenant, tenant);
  v1::AttachRequest request;
  request.set_request_id(id);
  request.set_after_tokens(after_tokens);
  const auto reader = server.inference().Attach(&context, request);
  Attached attached;
  v1::GenerateResponse frame;
  while (reader->Read(&frame)) attached.text += frame.tokens().text();
  attached.status = reader->Finish();
  return attached;
}

v1::AbortResponse Abort(TestServer& server, const std::string& id, const std::string& tenant = "") {
  grpc::ClientContext context;
  if (!tenant.empty()) context.AddMetadata(kTestTenant, tenant);
  v1::AbortRequest request;
  request.add_request_ids(id);
  v1::AbortResponse response;
  EXPECT_TRUE(server.control().Abort(&context, request, &response).ok());
  return response;
}

// Sends a request and leaves when it was accepted.
void Leave(TestServer& server, const v1::GenerateRequest& request, const std::string& tenant = "") {
  grpc::ClientContext context;
  if (!tenant.empty()) context.AddMetadata(kTestTenant, tenant);
  const auto reader = server.inference().Generate(&context, request);
  v1::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  context.TryCancel();
  reader->Finish();
}

// The same, until the server knows of it.
void Detach(TestServer& server, const v1::GenerateRequest& request,
            const std::string& tenant = "") {
  const int before = server.front().detached_streams();
  Leave(server, request, tenant);
  EXPECT_TRUE(
      TestServer::Eventually([&] { return server.front().detached_streams() == before + 1; }));
}

// Requests that no reader came back for.
int Expired(TestServer& server) {
  const std::string name = "quire_detached_expired_total{model_name=\"test-model\"} ";
  const std::string page = server.Metrics();
  return std::stoi(page.substr(page.find(name) + name.size()));
}

void ExpectGone(TestServer& server, const std::string& id) {
  const grpc::Status status = Attach(server, id).status;
  EXPECT_EQ(status.error_code(), Code::NOT_FOUND) << status.error_message();
  EXPECT_EQ(Reason(status), "REQUEST_NOT_FOUND");
}

TEST(DetachLimitsTest, ARequestThatNoReaderComesBackForEndsAndFreesAll) {
  TestServer server;
  server.gate().Allow(1);
  Leave(server, Detachable(1000, "running", 0.05));
  EXPECT_TRUE(TestServer::Eventually([&] { return Expired(server) == 1; }));
  server.gate().Allow(-1);
  ExpectGone(server, "running");
  server.ExpectNothingLeft();
  EXPECT_THAT(server.Metrics(), HasSubstr("quire_detached_bytes{model_name=\"test-model\"} 0"));
}

TEST(DetachLimitsTest, AFinishedAnswerIsKeptForTheRestOfItsTimeOnly) {
  TestServer server;
  server.gate().Allow(1);
  Detach(server, Detachable(5, "finished", 2));
  server.gate().Allow(-1);
  server.ExpectNothingLeft();  // it runs no more
  EXPECT_TRUE(TestServer::Eventually([&] { return Expired(server) == 1; }));
  ExpectGone(server, "finished");
}

TEST(DetachLimitsTest, TheIdOfADetachedRequestIsTaken) {
  TestServer server;
  server.gate().Allow(1);
  Detach(server, Detachable(5, "mine"));
  EXPECT_EQ(Stream(server.inference(), Detachable(5, "mine")).status.error_code(),
            Code::ALREADY_EXISTS);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
  EXPECT_EQ(Stream(server.inference(), Detachable(5, "mine")).status.error_code(),
            Code::ALREADY_EXISTS)
      << "its answer was not read yet";
  EXPECT_EQ(Attach(server, "mine").text, "abcde");
  EXPECT_TRUE(Stream(server.inference(), Detachable(3, "mine")).status.ok());
  EXPECT_EQ(Attach(server, "mine").text, "abc") << "an answer that was read gives way";
}

TEST(DetachLimitsTest, AnotherTenantCannotTellItFromNothing) {
  TestServerOptions options;
  options.front.door = TenantInMetadata();
  TestServer server(options);
  server.gate().Allow(1);
  Detach(server, Detachable(5, "mine"), "7");
  const grpc::Status foreign = Attach(server, "mine", 0, "8").status;
  const grpc::Status unknown = Attach(server, "none", 0, "8").status;
  EXPECT_EQ(foreign.error_code(), Code::NOT_FOUND);
  EXPECT_EQ(foreign.error_message(), unknown.error_message());
  EXPECT_EQ(foreign.error_details(), unknown.error_details());
  server.gate().Allow(-1);
  EXPECT_EQ(Attach(server, "mine", 0, "7").text, "abcde");
}

TEST(DetachLimitsTest, AbortEndsARunningAndDropsAFinishedRequest) {
  TestServer server;
  server.gate().Allow(1);
  Detach(server, Detachable(1000, "running"));
  EXPECT_EQ(Abort(server, "running").aborted(), 1u);
  ExpectGone(server, "running");
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
  server.gate().Allow(1);
  Detach(server, Detachable(5, "finished"));
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
  EXPECT_EQ(Abort(server, "finished").aborted(), 1u);
  ExpectGone(server, "finished");
  EXPECT_EQ(server.front().detached_streams(), 0);
  EXPECT_THAT(server.Metrics(), HasSubstr("quire_detached_bytes{model_name=\"test-model\"} 0"));
}

TEST(DetachLimitsTest, AnAbortThatComesBeforeItsRequestWins) {
  TestServerOptions options;
  options.front.door = TenantInMetadata();
  TestServer server(options);
  const v1::AbortResponse early = Abort(server, "soon", "7");
  EXPECT_EQ(early.aborted(), 0u);
  EXPECT_EQ(early.remembered(), 1u);
  v1::GenerateRequest request = AskFor(5);
  request.set_request_id("soon");
  EXPECT_TRUE(Stream(server.inference(), request).status.ok()) << "another tenant's request";
  for (const double seconds : {0., 60.}) {
    grpc::ClientContext context;
    context.AddMetadata(kTestTenant, "7");
    request.set_detach_seconds(seconds);
    const grpc::Status status = Stream(server.inference(), request, &context).status;
    EXPECT_EQ(status.error_code(), Code::CANCELLED);
    EXPECT_EQ(Reason(status), "ABORTED");
    EXPECT_EQ(Abort(server, "soon", "7").remembered(), 1u);
  }
  server.ExpectNothingLeft();
}

TEST(DetachLimitsTest, WrongRequestsAreRefusedByField) {
  TestServer server;
  const auto field = [&](v1::GenerateRequest request) {
    return ViolatedField(Stream(server.inference(), request).status);
  };
  EXPECT_EQ(field(Detachable(5, "a", 61)), "detach_seconds");
  EXPECT_EQ(field(Detachable(5, "a", -1)), "detach_seconds");
  EXPECT_EQ(field(Detachable(5, "a", std::nan(""))), "detach_seconds");
  EXPECT_EQ(field(Detachable(0, "a")), "stop.max_tokens");
  v1::GenerateRequest several = Detachable(5, "a");
  several.set_n(2);
  several.mutable_sampling()->set_temperature(1);
  EXPECT_EQ(field(several), "detach_seconds");
  v1::GenerateResult result;
  grpc::ClientContext unary;
  EXPECT_EQ(ViolatedField(server.inference().GenerateUnary(&unary, Detachable(5, "a"), &result)),
            "detach_seconds");
  EXPECT_EQ(ViolatedField(Attach(server, "").status), "request_id");
  EXPECT_EQ(ViolatedField(Attach(server, "a b").status), "request_id");
  EXPECT_TRUE(Stream(server.inference(), Detachable(5, "good")).status.ok());
  for (const uint32_t after : {6u, 4'000'000'000u}) {
    const grpc::Status status = Attach(server, "good", after).status;
    EXPECT_EQ(status.error_code(), Code::OUT_OF_RANGE);
    EXPECT_EQ(Fact(status, "last"), "5");
  }
  server.gate().Allow(0);
  grpc::ClientContext context;
  v1::GenerateRequest plain = AskFor(5);
  plain.set_request_id("plain");
  const auto reader = server.inference().Generate(&context, plain);
  v1::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  const grpc::Status status = Attach(server, "plain").status;
  EXPECT_EQ(status.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(status), "NOT_DETACHABLE");
  server.gate().Allow(-1);
  while (reader->Read(&frame)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(DetachLimitsTest, AServerWithoutDetachSaysSo) {
  TestServerOptions options;
  options.front.max_detach_seconds = 0;
  TestServer server(options);
  const grpc::Status status = Stream(server.inference(), Detachable(5, "a")).status;
  EXPECT_EQ(ViolatedField(status), "detach_seconds");
  EXPECT_THAT(status.error_message(), HasSubstr("--max-detach-seconds"));
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server.control().GetServerInfo(&context, {}, &info).ok());
  EXPECT_TRUE(info.has_max_detach_seconds());
  EXPECT_EQ(info.max_detach_seconds(), 0);
}

TEST(DetachLimitsTest, AFloodIsRefusedAtTheDoorAndLeavesRoomForOthers) {
  TestServerOptions options;
  options.front.door = TenantInMetadata();
  options.front.max_detached_bytes = 10 * (16 << 10);
  TestServer server(options);
  int taken = 0;
  grpc::Status refused;
  for (int i = 0; i < 20 && refused.ok(); ++i) {
    server.gate().Allow(1);
    grpc::ClientContext context;
    context.AddMetadata(kTestTenant, "1");
    const auto reader =
        server.inference().Generate(&context, Detachable(5, "flood-" + std::to_string(i)));
    v1::GenerateResponse frame;
    if (!reader->Read(&frame)) {
      refused = reader->Finish();
      break;
    }
    ++taken;
    context.TryCancel();
    reader->Finish();
    EXPECT_TRUE(TestServer::Eventually([&] { return server.front().detached_streams() == taken; }));
  }
  EXPECT_LE(taken, 10);
  EXPECT_GE(taken, 5);
  EXPECT_EQ(refused.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(refused), "TOO_MANY_DETACHED");
  server.gate().Allow(-1);
  grpc::ClientContext other;
  other.AddMetadata(kTestTenant, "2");
  EXPECT_TRUE(Stream(server.inference(), Detachable(5, "other"), &other).status.ok());
  EXPECT_EQ(Attach(server, "flood-0", 0, "1").text, "abcde") << "kept answers stay as they are";
  EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().running_requests() == 0; }));
}

TEST(DetachLimitsTest, AnswersThatWereReadGiveWay) {
  TestServerOptions options;
  options.front.max_detached_bytes = 4 * (16 << 10);
  TestServer server(options);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(Stream(server.inference(), Detachable(5, "r" + std::to_string(i))).status.ok());
    EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
  }
  ExpectGone(server, "r0");
  EXPECT_EQ(Attach(server, "r29").text, "abcde");
}

TEST(DetachLimitsTest, UnreadOutputBeyondItsBoundPausesTheRequest) {
  TestServerOptions options;
  options.front.stream_buffer_bytes = 16 << 10;  // an answer keeps four times that
  options.num_blocks = 4097;
  options.max_model_len = 65536;
  TestServer server(options);
  constexpr uint32_t kTokens = 20000;
  server.gate().Allow(0);  // no output is sent to the call that leaves
  Detach(server, Detachable(kTokens, "long"));
  server.gate().Allow(-1);
  EXPECT_TRUE(TestServer::Eventually([&] {
    const SchedulerLoad load = server.engine().Stats().load;
    return load.paused == 1 && load.free_blocks == load.total_blocks;
  }));
  EXPECT_LT(server.engine().Stats().generated_tokens, kTokens);
  const Attached whole = Attach(server, "long");
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  EXPECT_EQ(whole.text.size(), kTokens);
  const grpc::Status old = Attach(server, "long", 0).status;
  EXPECT_EQ(old.error_code(), Code::OUT_OF_RANGE);
  const uint32_t first = static_cast<uint32_t>(std::stoul(Fact(old, "first")));
  EXPECT_GT(first, 0u);
  EXPECT_EQ(Attach(server, "long", first).text.size(), kTokens - first);
  server.ExpectNothingLeft();
}

TEST(DetachLimitsTest, ADrainWaitsForRunningRequestsAndLetsReadersBackIn) {
  TestServer server;
  server.gate().Allow(1);
  Detach(server, Detachable(5, "before"));
  server.front().StartDrain();
  EXPECT_EQ(server.front().open_streams(), 1) << "the drain waits for it";
  EXPECT_EQ(Reason(Stream(server.inference(), Detachable(5, "new")).status), "DRAINING");
  server.gate().Allow(-1);
  EXPECT_EQ(Attach(server, "before").text, "abcde");
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
}

TEST(DetachLimitsTest, AShutdownEndsDetachedRequestsAndForgetsAnswers) {
  TestServer server;
  server.gate().Allow(1);
  Detach(server, Detachable(1000, "running"));
  server.gate().Allow(-1);
  server.front().Shutdown(5);
  EXPECT_EQ(server.front().open_streams(), 0);
  EXPECT_EQ(server.front().detached_streams(), 0);
}

TEST(DetachLimitsTest, ADeadlineEndsADetachedRequest) {
  TestServer server;
  server.gate().Allow(1);
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    const auto reader = server.inference().Generate(&context, Detachable(1000, "late"));
    v1::GenerateResponse frame;
    ASSERT_TRUE(reader->Read(&frame));
    while (reader->Read(&frame)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), Code::DEADLINE_EXCEEDED);
  }
  // The client may know of the deadline before the server does.
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
  server.gate().Allow(-1);
  const Attached late = Attach(server, "late");
  EXPECT_EQ(late.status.error_code(), Code::DEADLINE_EXCEEDED);
  EXPECT_THAT(late.text, HasSubstr("a")) << "with what there was";
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
