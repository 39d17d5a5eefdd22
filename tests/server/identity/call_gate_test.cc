// Refusals beyond a number in a minute are answered a second later, and all at once when the server
// ends.
#include "server/identity/call_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/server/test_server.h"

namespace quire {
namespace {

class ClosedDoor final : public Door {
 public:
  Admission Admit(const CallFacts&, std::string_view) const override {
    return {nullptr, Refused::kMissing};
  }
};

TEST(CallGateTest, SlowsRefusalsAndStillAnswersEach) {
  const ClosedDoor door;
  TestServerOptions options;
  options.front.door = &door;
  TestServer server(options);
  const int calls = CallGate::kQuickRefusals + 20;
  std::atomic<int> refused{0};
  std::atomic<int> slow{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < calls; ++i) {
    callers.emplace_back([&] {
      grpc::ClientContext context;
      const auto begin = std::chrono::steady_clock::now();
      const grpc::Status status = Stream(server.inference(), AskFor(1), &context).status;
      refused += status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
      // A slow answer takes a second at least; how much longer is the machine's affair.
      slow += std::chrono::steady_clock::now() - begin >= std::chrono::seconds(1);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(refused, calls);
  EXPECT_GE(slow, 20);
  EXPECT_EQ(server.metrics().auth().refused(), calls);
}

TEST(CallGateTest, AServerThatEndsWaitsForNoSlowRefusal) {
  const ClosedDoor door;
  TestServerOptions options;
  options.front.door = &door;
  auto server = std::make_unique<TestServer>(options);
  std::vector<std::thread> callers;
  std::atomic<int> ended{0};
  for (int i = 0; i < CallGate::kQuickRefusals + 20; ++i) {
    callers.emplace_back([&] {
      grpc::ClientContext context;
      EXPECT_FALSE(Stream(server->inference(), AskFor(1), &context).status.ok());
      ++ended;
    });
  }
  EXPECT_TRUE(TestServer::Eventually(
      [&] { return server->metrics().auth().refused() > CallGate::kQuickRefusals; }));
  server->front().Shutdown(0);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(ended, CallGate::kQuickRefusals + 20);
}

}  // namespace
}  // namespace quire
