// The lines of the log about requests, aborts and drains, over real gRPC.
// Covers server/generate/abort_streams.cc, server/generate/request_log.cc
#include "server/generate/request_log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "field/openengine.grpc.pb.h"
#include "tests/server/log_capture.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

// The one line with `words`, once it is there.
std::string Line(const LogCapture& log, const std::string& words) {
  EXPECT_TRUE(TestServer::Eventually([&] { return !log.Lines(words).empty(); })) << words;
  const std::vector<std::string> lines = log.Lines(words);
  EXPECT_EQ(lines.size(), 1u) << words;
  return lines.empty() ? "" : lines[0];
}

void ExpectHas(const std::string& line, const std::vector<std::string>& fields) {
  for (const std::string& field : fields) {
    EXPECT_NE(line.find(" " + field), std::string::npos) << field << " is not in " << line;
  }
}

TEST(RequestLogTest, AFinishedRequestHasOneLineWithoutItsText) {
  TestServerOptions options;
  options.front.door = TenantInMetadata();
  TestServer server(options);
  const LogCapture log;
  v1::GenerateRequest request = AskFor(5);
  request.set_request_id("r1");
  request.set_session_id("clara");
  request.set_create_session(true);
  grpc::ClientContext context;
  context.AddMetadata(kTestTenant, "7");
  ASSERT_TRUE(Stream(server.inference(), request, &context).status.ok());
  const std::string line = Line(log, "request finished");
  ExpectHas(line, {"INFO request finished", "request_id=r1", "tenant=7", "session=clara",
                   "prompt_tokens=3", "cached_tokens=0", "completion_tokens=5", "queue_seconds=",
                   "first_token_seconds=", "total_seconds=", "reason=MAX_TOKENS", "code=OK"});
  EXPECT_EQ(line.find("abcde"), std::string::npos) << line;
}

TEST(RequestLogTest, CanBeTurnedOff) {
  TestServerOptions options;
  options.front.log_requests = false;
  TestServer server(options);
  const LogCapture log;
  ASSERT_TRUE(Stream(server.inference(), AskFor(5)).status.ok());
  server.front().StartDrain();
  EXPECT_FALSE(Stream(server.inference(), AskFor(5)).status.ok());
  StopLog();
  EXPECT_TRUE(log.Lines("request").empty());
}

TEST(RequestLogTest, RefusedRequestsShareOneLinePerSecond) {
  TestServer server;
  const LogCapture log;
  server.front().StartDrain();
  // The second of the process's last line may not be over.
  EXPECT_TRUE(TestServer::Eventually([&] {
    EXPECT_EQ(Reason(Stream(server.inference(), AskFor(1)).status), "DRAINING");
    return !log.Lines("requests refused").empty();
  }));
  ExpectHas(log.Lines("requests refused")[0],
            {"INFO requests refused", "count=", "last_code=UNAVAILABLE", "last_reason=DRAINING"});
}

TEST(RequestLogTest, AnAbortLogsTenantIdsAndCounts) {
  TestServer server;
  const LogCapture log;
  server.gate().Allow(2);
  grpc::ClientContext context;
  v1::GenerateRequest request = AskFor(1000);
  request.set_request_id("r1");
  const auto stream = server.inference().Generate(&context, request);
  v1::GenerateResponse frame;
  ASSERT_TRUE(stream->Read(&frame));
  v1::AbortRequest abort;
  abort.add_request_ids("r1");
  abort.add_request_ids("words of the client");
  v1::AbortResponse aborted;
  grpc::ClientContext abort_context;
  ASSERT_TRUE(server.control().Abort(&abort_context, abort, &aborted).ok());
  const std::string line = Line(log, "INFO abort");
  ExpectHas(line, {"tenant=\"\"", "key=\"\"", "all=false", "named=2", "found=1", "request_ids=r1"});
  EXPECT_EQ(line.find("words"), std::string::npos) << line;
  server.gate().Allow(-1);
  ExpectHas(Line(log, "request finished"), {"reason=CANCELLED", "code=CANCELLED"});
  while (stream->Read(&frame)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

TEST(RequestLogTest, AnAbortOfAForeignProtocolIsLoggedAsOurs) {
  TestServer server;
  server.gate().Allow(0);
  const auto control = openengine::v1::Control::NewStub(server.channel());
  StreamedOutput output;
  v1::GenerateRequest request = AskFor(10);
  request.set_request_id("r2");
  std::thread client([&] { output = Stream(server.inference(), request); });
  const LogCapture log;
  openengine::v1::AbortRequest abort;
  abort.set_request_id("r2");
  openengine::v1::AbortResponse aborted;
  EXPECT_TRUE(TestServer::Eventually([&] {
    grpc::ClientContext context;
    EXPECT_TRUE(control->Abort(&context, abort, &aborted).ok());
    return aborted.status() == openengine::v1::ABORT_STATUS_ABORTED;
  }));
  server.gate().Allow(-1);
  client.join();
  EXPECT_EQ(output.status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(TestServer::Eventually([&] { return !log.Lines("found=1").empty(); }));
  ExpectHas(log.Lines("found=1")[0],
            {"INFO abort", "method=openengine.v1.Control/Abort", "tenant=\"\"", "key=\"\"",
             "all=false", "named=1", "request_ids=r2"});
}

TEST(RequestLogTest, DrainAndUndrainAreLogged) {
  TestServer server;
  const LogCapture log;
  v1::DrainResponse drained;
  grpc::ClientContext contexts[2];
  ASSERT_TRUE(server.control().Drain(&contexts[0], {}, &drained).ok());
  ExpectHas(Line(log, "INFO drain:"),
            {"tenant=\"\"", "key=\"\"", "exit_when_idle=false", "open_streams=0"});
  v1::UndrainResponse undrained;
  ASSERT_TRUE(server.control().Undrain(&contexts[1], {}, &undrained).ok());
  ExpectHas(Line(log, "INFO undrain:"), {"tenant=\"\""});
}

}  // namespace
}  // namespace quire
