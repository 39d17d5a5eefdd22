// The stub follows its script, as a plain client sees it. The known-answer tests rest on this.
#include "tests/clients/load/stub_server.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace quire::load {
namespace {

using Clock = std::chrono::steady_clock;

// The status and frames that a client saw which only reads, in seconds from its call.
struct Seen {
  grpc::Status status;
  std::vector<double> frame_seconds;
  std::vector<uint32_t> cumulative;
  bool finished = false;
  bool frame_after_finished = false;
};

Seen Call(const std::string& address, uint32_t max_tokens = 4) {
  auto stub =
      v1::Inference::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::GenerateRequest request;
  request.mutable_stop()->set_max_tokens(max_tokens);
  const Clock::time_point start = Clock::now();
  auto reader = stub->Generate(&context, request);
  Seen seen;
  v1::GenerateResponse frame;
  while (reader->Read(&frame)) {
    seen.frame_after_finished |= seen.finished;
    seen.finished |= frame.has_finished();
    if (!frame.has_tokens()) continue;
    seen.frame_seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    seen.cumulative.push_back(frame.tokens().cumulative_tokens());
  }
  seen.status = reader->Finish();
  return seen;
}

StubOptions Always(const StubReply& reply) {
  return {.script = [reply](uint64_t, const v1::GenerateRequest&) { return reply; }};
}

TEST(StubServerTest, SendsFramesNoEarlierThanScripted) {
  StubReply reply = SteadyReply(0.05, 3, 0.03);
  reply.frame_tokens = {1, 2, 4};
  StubServer stub(Always(reply));
  const Seen seen = Call(stub.address());
  EXPECT_TRUE(seen.status.ok());
  EXPECT_TRUE(seen.finished);
  EXPECT_EQ(seen.cumulative, (std::vector<uint32_t>{1, 3, 7}));
  const StubCall call = stub.calls().at(0);
  ASSERT_EQ(call.frame_ns.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const double sent = 1e-9 * static_cast<double>(call.frame_ns[i] - call.arrived_ns);
    EXPECT_GE(sent, 0.05 + 0.03 * i);
    EXPECT_LE(sent, 0.05 + 0.03 * i + stub.worst_lateness_seconds() + 1e-6);
    EXPECT_GE(seen.frame_seconds[i], sent);
  }
}

TEST(StubServerTest, StandsStillDuringAStall) {
  StubOptions options = Always(SteadyReply(0.01, 3, 0.04));
  options.stalls = {{0.03, 0.23}};  // after the first frame, before the second
  StubServer stub(options);
  EXPECT_TRUE(Call(stub.address()).status.ok());
  const StubCall call = stub.calls().at(0);
  const double late = stub.worst_lateness_seconds() + 1e-6;
  const double expected[] = {0.01, 0.05 + 0.2, 0.09 + 0.2};
  for (int i = 0; i < 3; ++i) {
    const double sent = 1e-9 * static_cast<double>(call.frame_ns[i] - call.arrived_ns);
    EXPECT_GE(sent, expected[i]);
    EXPECT_LE(sent, expected[i] + late);
  }
}

TEST(StubServerTest, ARequestThatArrivesInAStallWaitsForItsEnd) {
  StubOptions options = Always(SteadyReply(0.01, 1, 0));
  options.stalls = {{0.02, 0.32}};
  StubServer stub(options);
  Call(stub.address());
  // The first call ends at 0.01; the second arrives once the stall has begun.
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  Call(stub.address());
  const std::vector<StubCall> calls = stub.calls();
  const double sent = 1e-9 * static_cast<double>(calls[1].frame_ns.at(0) - calls[0].arrived_ns);
  EXPECT_GE(sent, 0.33);
  EXPECT_LE(sent, 0.33 + stub.worst_lateness_seconds() + 1e-6);
}

TEST(StubServerTest, DiesInMidStream) {
  StubOptions options = Always(SteadyReply(0.01, 100, 0.02));
  options.dies_after_seconds = 0.1;
  StubServer stub(options);
  const Seen seen = Call(stub.address());
  EXPECT_EQ(seen.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_GE(seen.frame_seconds.size(), 1u);
  EXPECT_LT(seen.frame_seconds.size(), 100u);
  EXPECT_EQ(Call(stub.address()).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(StubServerTest, KnowsNothingAsAWrongService) {
  StubOptions options = Always(SteadyReply(0.01, 1, 0));
  options.wrong_service = true;
  StubServer stub(options);
  EXPECT_EQ(Call(stub.address()).status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(StubServerTest, EndsAsScripted) {
  StubReply reply = SteadyReply(0.001, 2, 0.001);
  reply.code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  reply.message = "too much";
  StubServer stub(Always(reply));
  const Seen seen = Call(stub.address());
  EXPECT_EQ(seen.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(seen.status.error_message(), "too much");
  EXPECT_EQ(seen.cumulative.size(), 2u);
  EXPECT_FALSE(seen.finished);
}

TEST(StubServerTest, BreaksTheProtocolAsScripted) {
  const auto with = [](StubFault fault) {
    StubReply reply = SteadyReply(0.001, 4, 0.001);
    reply.fault = fault;
    StubServer stub(Always(reply));
    return Call(stub.address());
  };
  EXPECT_EQ(with(StubFault::kLostFrame).cumulative, (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_EQ(with(StubFault::kRepeatedFrame).cumulative, (std::vector<uint32_t>{1, 2, 3, 3, 4}));
  EXPECT_TRUE(with(StubFault::kFrameAfterFinished).frame_after_finished);
  EXPECT_FALSE(with(StubFault::kNoFinished).finished);
}

}  // namespace
}  // namespace quire::load
