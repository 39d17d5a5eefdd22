// Texts that keep the tokenizer's pattern busy: what their callers get, and that the work ends with
// the call.
#include <gmock/gmock.h>
#include <grpcpp/completion_queue.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/server/h2_client.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

// A text of this size may take many seconds of steps, and then INVALID_ARGUMENT ends the call.
constexpr size_t kLongBytes = size_t{32} << 20;
constexpr std::chrono::seconds kPatience{60};

// Looks for a digit behind each letter of a run: work that is quadratic in the text.
TestServerOptions Quadratic() {
  TestServerOptions options;
  options.split_pattern = "[a-z]+[0-9]";
  options.front.text_threads = 1;
  options.front.max_request_bytes = 2 * kLongBytes;
  return options;
}

std::string Letters(size_t bytes) { return std::string(bytes, 'a'); }

grpc::Status Tokenize(TestServer& server, const std::string& text,
                      std::chrono::milliseconds deadline = kPatience) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline);
  v1::TokenizeRequest request;
  request.set_text(text);
  v1::TokenizeResponse response;
  return server.inference().Tokenize(&context, request, &response);
}

// The number of calls of Tokenize that the server has ended with a code.
int Ended(TestServer& server, const std::string& code) {
  const std::string page = server.Metrics();
  const std::string series = "code=\"" + code + "\",method=\"Tokenize\"} ";
  const size_t at = page.find(series);
  return at == page.npos ? 0 : std::stoi(page.substr(at + series.size()));
}

TEST(TextJobTest, TooMuchBacktrackingIsInvalidArgument) {
  TestServer server(Quadratic());
  EXPECT_TRUE(Tokenize(server, Letters(1000)).ok());
  const std::string text = Letters(1 << 16);
  const grpc::Status refused = Tokenize(server, text);
  EXPECT_EQ(refused.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(ViolatedField(refused), "text");
  EXPECT_THAT(refused.error_message(), HasSubstr("pattern gave up at byte"));
  v1::GenerateRequest request = AskFor(1);
  request.set_text(text);
  const grpc::Status status = Stream(server.inference(), request).status;
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(ViolatedField(status), "text");
  EXPECT_TRUE(Stream(server.inference(), AskFor(1)).status.ok());
  server.ExpectNothingLeft();
}

TEST(TextJobTest, EndsWithTheDeadlineOfItsCall) {
  TestServer server(Quadratic());
  const grpc::Status status =
      Tokenize(server, Letters(kLongBytes), std::chrono::milliseconds(500 * kMemoryFactor));
  EXPECT_EQ(status.error_code(), Code::DEADLINE_EXCEEDED);
  // The one thread for text is free again.
  EXPECT_TRUE(Tokenize(server, "hi").ok());
  EXPECT_EQ(Ended(server, "INVALID_ARGUMENT"), 0);
}

// As the one above, on a machine where the deadline passes before the text has come.
TEST(TextJobTest, ACallThatEndsBeforeItsTextHasNone) {
  TestServer server(Quadratic());
  H2Client client(server.front().port());
  client.AddReset(client.AddHeaders("/quire.v1.Inference/Tokenize"));
  ASSERT_TRUE(client.Send(false));
  EXPECT_TRUE(TestServer::Eventually([&] { return Ended(server, "CANCELLED") == 1; }));
  EXPECT_EQ(Ended(server, "INVALID_ARGUMENT"), 0);
}

TEST(TextJobTest, EndsWhenItsStreamIsCancelled) {
  TestServer server(Quadratic());
  v1::GenerateRequest request = AskFor(1);
  request.set_text(Letters(kLongBytes));
  grpc::ClientContext context;
  const auto stream = server.inference().Generate(&context, request);
  ASSERT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 1; }));
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), Code::CANCELLED);
  EXPECT_TRUE(Tokenize(server, "hi").ok());
  server.ExpectNothingLeft();
}

// A call of Tokenize under way; ends it.
class OpenTokenize {
 public:
  explicit OpenTokenize(TestServer& server) {
    request_.set_text(Letters(kLongBytes));
    reader_ = server.inference().AsyncTokenize(&context_, request_, &queue_);
    reader_->Finish(&response_, &status_, this);
  }
  ~OpenTokenize() {
    context_.TryCancel();
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
  }

 private:
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  v1::TokenizeRequest request_;
  v1::TokenizeResponse response_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::TokenizeResponse>> reader_;
};

TEST(TextJobTest, UnendedWorkIsCountedByKind) {
  TestServer server(Quadratic());
  // The counts become these, all at one time.
  const auto expect = [&](int streams, int calls, int text_jobs) {
    UnendedCalls last;
    EXPECT_TRUE(TestServer::Eventually([&] {
      last = server.front().unended();
      return last.streams == streams && last.calls == calls && last.text_jobs == text_jobs;
    })) << last.streams
        << " streams, " << last.calls << " calls, " << last.text_jobs << " jobs";
  };
  expect(0, 0, 0);
  server.gate().Allow(0);  // no stream ends
  grpc::ClientContext context;
  const auto stream = server.inference().Generate(&context, AskFor(1));
  expect(1, 1, 0);
  {
    // One runs, and the other waits for the one thread for text.
    const OpenTokenize first(server), second(server);
    expect(1, 3, 2);
  }
  expect(1, 1, 0);
  server.gate().Allow(-1);
  context.TryCancel();
  stream->Finish();
  expect(0, 0, 0);
}

TEST(TextJobTest, EndsWithTheServer) {
  TestServer server(Quadratic());
  std::thread caller([&] { Tokenize(server, Letters(kLongBytes), 10 * kPatience); });
  // The job runs once the one thread for text has no time for another.
  while (Tokenize(server, "hi", std::chrono::milliseconds(300)).ok()) {
  }
  server.front().Shutdown(0);
  caller.join();
  EXPECT_EQ(Ended(server, "INVALID_ARGUMENT"), 0);
}

}  // namespace
}  // namespace quire
