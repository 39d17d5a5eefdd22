// Events that clients can cause at any rate take at most one log line per second, with a count.
#include "server/call/log_rate_limiter.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "tests/server/h2_client.h"
#include "tests/server/log_capture.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {
constexpr int64_t kSecondNs = 1'000'000'000;

TEST(LogRateLimiterTest, OneLinePerSecondCarriesTheCountSinceTheLast) {
  LogRateLimiter limiter;
  EXPECT_EQ(limiter.Count(5 * kSecondNs), 1);
  EXPECT_EQ(limiter.Count(5 * kSecondNs), 0);
  EXPECT_EQ(limiter.Count(6 * kSecondNs - 1), 0);
  EXPECT_EQ(limiter.Count(6 * kSecondNs), 3);
  EXPECT_EQ(limiter.Count(60 * kSecondNs), 1);
}

TEST(LogRateLimiterTest, ThreadsLoseNoCount) {
  LogRateLimiter limiter;
  std::atomic<int64_t> logged{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 0; i < 10'000; ++i) logged += limiter.Count(i * kSecondNs / 100);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(logged + limiter.Count(1000 * kSecondNs), 40'001);
}

// The lines that one a second allows since `since_ns`.
size_t Allowed(int64_t since_ns) {
  return static_cast<size_t>(1 + (SteadyNowNs() - since_ns) / kSecondNs);
}

TEST(LogFloodTest, ConnectionsBeyondTheCap) {
  TestServerOptions options;
  options.front.max_connections = 1;
  TestServer server(options);
  ASSERT_TRUE(Stream(server.inference(), AskFor(1)).status.ok());
  const LogCapture log;
  const int64_t since_ns = SteadyNowNs();
  for (int i = 0; i < 300; ++i) {
    H2Client refused(server.front().port());
    (void)refused.Send(false);
    EXPECT_FALSE(refused.Read(1));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return !log.Lines("connections refused").empty(); }));
  StopLog();
  EXPECT_LE(log.Lines("connections refused").size(), Allowed(since_ns));
  EXPECT_NE(
      server.Metrics().find("quire_connections_rejected_total{model_name=\"test-model\"} 300\n"),
      std::string::npos);
}

// The library logs each.
TEST(LogFloodTest, CompressedRequests) {
  TestServer server;
  const LogCapture log;
  const int64_t since_ns = SteadyNowNs();
  const auto call = [&] {
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    v1::TokenizeRequest request;
    request.set_text(std::string(1000, 'a'));
    v1::TokenizeResponse response;
    return server.inference().Tokenize(&context, request, &response).error_code();
  };
  for (int i = 0; i < 300; ++i) EXPECT_EQ(call(), grpc::StatusCode::UNIMPLEMENTED);
  // The limiter belongs to the process: its second may have begun before this test.
  EXPECT_TRUE(TestServer::Eventually([&] {
    (void)call();
    return !log.Lines("gRPC library error").empty();
  }));
  StopLog();
  EXPECT_LE(log.Lines("gRPC library error").size(), Allowed(since_ns));
}

}  // namespace
}  // namespace quire
