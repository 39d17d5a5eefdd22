// What clients can do as often as they like fills no log: a line a second at most, with a count.
#include "server/call/log_pace.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "tests/server/h2_client.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

TEST(LogPaceTest, OneLineASecondCarriesTheCountOfThoseBefore) {
  LogPace pace;
  EXPECT_EQ(pace.Count(5 * kSecondNs), 1);
  EXPECT_EQ(pace.Count(5 * kSecondNs), 0);
  EXPECT_EQ(pace.Count(6 * kSecondNs - 1), 0);
  EXPECT_EQ(pace.Count(6 * kSecondNs), 3);
  EXPECT_EQ(pace.Count(60 * kSecondNs), 1);
}

TEST(LogPaceTest, NoneIsLostAmongThreads) {
  LogPace pace;
  std::atomic<int64_t> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 0; i < 10'000; ++i) told += pace.Count(i * kSecondNs / 100);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told + pace.Count(1000 * kSecondNs), 40'001);
}

// The log's lines while it lives.
class LogCapture {
 public:
  LogCapture() { StartLog(LogFormat::kText, Severity::kInfo, file_); }
  ~LogCapture() {
    StopLog();
    StartLog(LogFormat::kText, Severity::kInfo);
    close(file_);
  }
  // How many lines so far contain `words`.
  int64_t Lines(const std::string& words) const {
    int64_t count = 0;
    std::ifstream in("/proc/self/fd/" + std::to_string(file_));
    for (std::string line; std::getline(in, line);) count += line.find(words) != std::string::npos;
    return count;
  }
  // What a line a second allows until now.
  int64_t Allowed() const { return 1 + (SteadyNowNs() - since_ns_) / kSecondNs; }

 private:
  const int file_ = memfd_create("log", MFD_CLOEXEC);
  const int64_t since_ns_ = SteadyNowNs();
};

TEST(LogFloodTest, ConnectionsBeyondTheCap) {
  TestServerOptions options;
  options.front.max_connections = 1;
  TestServer server(options);
  ASSERT_TRUE(Stream(server.inference(), AskFor(1)).status.ok());
  const LogCapture log;
  for (int i = 0; i < 300; ++i) {
    H2Client refused(server.front().port());
    (void)refused.Send(false);
    EXPECT_FALSE(refused.Read(1));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return log.Lines("connections refused") > 0; }));
  StopLog();
  EXPECT_LE(log.Lines("connections refused"), log.Allowed());
  EXPECT_NE(
      server.Metrics().find("quire_connections_rejected_total{model_name=\"test-model\"} 300\n"),
      std::string::npos);
}

// The library complains of each.
TEST(LogFloodTest, CompressedRequests) {
  TestServer server;
  const LogCapture log;
  const auto call = [&] {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::TokenizeRequest request;
    request.set_text(std::string(1000, 'a'));
    v1::TokenizeResponse response;
    return server.inference().Tokenize(&context, request, &response).error_code();
  };
  for (int i = 0; i < 300; ++i) EXPECT_EQ(call(), grpc::StatusCode::UNIMPLEMENTED);
  // The pace is the process's: the second may have begun before this test.
  EXPECT_TRUE(TestServer::Eventually([&] {
    (void)call();
    return log.Lines("gRPC library error") > 0;
  }));
  StopLog();
  EXPECT_LE(log.Lines("gRPC library error"), log.Allowed());
}

}  // namespace
}  // namespace quire
