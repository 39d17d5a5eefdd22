// Readers that are slow, stop, or never start: the server coalesces their output, then pauses them,
// then sheds them, without effect on other streams.
// Covers server/generate/stall_watch.cc
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/server/h2_client.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

constexpr char kGenerate[] = "/quire.v1.Inference/Generate";

TestServerOptions LongAnswers() {
  TestServerOptions options;
  options.num_blocks = 4097;
  options.max_model_len = 65536;
  return options;
}

TEST(SlowReaderTest, GetsFewerLargerFramesWithAllTokens) {
  TestServerOptions options = LongAnswers();
  options.front.stream_buffer_bytes = 8 << 20;
  TestServer server(options);
  grpc::ClientContext context;
  constexpr uint32_t kTokens = 60000;
  const auto stub = v1::Inference::NewStub(server.NewChannel(/*fixed_window=*/true));
  const auto reader = stub->Generate(&context, AskFor(kTokens));
  // Reads nothing until the engine has finished: output beyond the windows waits in one frame.
  EXPECT_TRUE(TestServer::Eventually([&] {
    return server.engine().Idle() && server.engine().Stats().generated_tokens == kTokens;
  }));
  v1::GenerateResponse frame;
  uint32_t tokens = 0;
  int frames = 0;
  int largest = 0;
  std::string text;
  while (reader->Read(&frame)) {
    if (!frame.has_tokens()) continue;
    ++frames;
    tokens += static_cast<uint32_t>(frame.tokens().token_ids_size());
    largest = std::max(largest, frame.tokens().token_ids_size());
    EXPECT_EQ(frame.tokens().cumulative_tokens(), tokens);
    text += frame.tokens().text();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, kTokens);
  EXPECT_EQ(text.size(), kTokens);
  EXPECT_LT(frames, static_cast<int>(kTokens) / 2);
  EXPECT_GT(largest, 1000);
  server.ExpectNothingLeft();
}

TEST(SlowReaderTest, IsPausedWhenItsBufferFillsAndResumesWhenItReads) {
  TestServerOptions options = LongAnswers();
  options.front.stream_buffer_bytes = 32 << 10;
  TestServer server(options);
  grpc::ClientContext context;
  constexpr uint32_t kTokens = 30000;
  const auto stub = v1::Inference::NewStub(server.NewChannel(/*fixed_window=*/true));
  const auto reader = stub->Generate(&context, AskFor(kTokens));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.engine().Stats().load.paused == 1; }));
  // Once the steps in flight have retired.
  EXPECT_TRUE(TestServer::Eventually([&] {
    const SchedulerLoad load = server.engine().Stats().load;
    return load.paused == 1 && load.free_blocks == load.total_blocks;
  })) << "a paused request holds blocks";
  EXPECT_LT(server.engine().Stats().generated_tokens, kTokens);
  EXPECT_TRUE(Stream(server.inference(), AskFor(5)).status.ok()) << "another stream was affected";
  v1::GenerateResponse frame;
  uint32_t tokens = 0;
  while (reader->Read(&frame)) {
    if (!frame.has_tokens()) continue;
    tokens += static_cast<uint32_t>(frame.tokens().token_ids_size());
    EXPECT_EQ(frame.tokens().cumulative_tokens(), tokens);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, kTokens);
  server.ExpectNothingLeft();
}

TEST(SlowReaderTest, IsShedWithAReasonWhenPausedForTooLong) {
  TestServerOptions options = LongAnswers();
  options.front.stream_buffer_bytes = 16 << 10;
  options.front.slow_reader_timeout_seconds = 0.3;
  TestServer server(options);
  grpc::ClientContext context;
  const auto stub = v1::Inference::NewStub(server.NewChannel(/*fixed_window=*/true));
  const auto reader = stub->Generate(&context, AskFor(60000));
  EXPECT_TRUE(TestServer::Eventually(
      [&] { return server.engine().Stats().generated_tokens > 0 && server.engine().Idle(); }));
  EXPECT_LT(server.engine().Stats().generated_tokens, 60000u);
  v1::GenerateResponse frame;
  uint32_t tokens = 0;
  while (reader->Read(&frame)) {
    if (!frame.has_tokens()) continue;
    tokens += static_cast<uint32_t>(frame.tokens().token_ids_size());
    EXPECT_EQ(frame.tokens().cumulative_tokens(), tokens);
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(status), "SLOW_READER");
  EXPECT_GT(tokens, 0u);
  server.ExpectNothingLeft();
}

TEST(SlowReaderTest, IsShedAndResetWhenItsOutputIsTooOld) {
  TestServerOptions options = LongAnswers();
  options.front.stream_buffer_bytes = 64 << 20;
  options.front.slow_reader_timeout_seconds = 0.3;
  TestServer server(options);
  H2Client client(server.front().port(), /*initial_window=*/0);
  client.AddMessage(client.AddHeaders(kGenerate), AskFor(1000).SerializeAsString());
  ASSERT_TRUE(client.Send(false));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 1; }));
  // The peer grants no window, so the status cannot be delivered either.
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
  server.ExpectNothingLeft();
}

// Wide windows, and a socket that is never read: the transport's write blocks.
std::unique_ptr<H2Client> FillSocket(TestServer& server) {
  auto client = std::make_unique<H2Client>(server.front().port(), H2Client::kWidestWindow);
  client->AddWideWindow();
  for (int i = 0; i < 8; ++i) {
    client->AddMessage(client->AddHeaders(kGenerate), AskFor(60000).SerializeAsString());
  }
  EXPECT_TRUE(client->Send(false));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 8; }));
  return client;
}

TestServerOptions EightLongAnswers() {
  TestServerOptions options = LongAnswers();
  options.num_blocks = 8 * 4097;
  options.front.stream_buffer_bytes = 64 << 10;
  return options;
}

TEST(SlowReaderTest, AFullSocketIsCutWhenItsStreamsCannotBeReset) {
  TestServerOptions options = EightLongAnswers();
  options.front.slow_reader_timeout_seconds = 0.3;
  TestServer server(options);
  const auto client = FillSocket(server);
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
  server.ExpectNothingLeft();
}

TEST(SlowReaderTest, AFullSocketDoesNotDelayTheShutdown) {
  TestServer server(EightLongAnswers());
  const auto client = FillSocket(server);
  // Once no byte moves, the socket and every buffer before it are full.
  uint64_t tokens = 0;
  EXPECT_TRUE(TestServer::Eventually([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const uint64_t before = std::exchange(tokens, server.engine().Stats().generated_tokens);
    return tokens > 0 && tokens == before;
  }));
  EXPECT_GT(server.front().open_streams(), 0);
  server.front().Shutdown(0.2);
  EXPECT_EQ(server.front().open_streams(), 0);
}

TEST(SlowReaderTest, PatientStreamsOutliveTheTimeout) {
  TestServerOptions options;
  options.front.slow_reader_timeout_seconds = 1;
  TestServer server(options);
  server.gate().Allow(2);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    server.gate().Allow(-1);
  });
  // No output is unsent while the engine computes, so the stream is not shed.
  EXPECT_TRUE(Stream(server.inference(), AskFor(20)).status.ok());
  later.join();
}

TEST(SlowReaderTest, AThousandReadersThatNeverReadDelayNoOther) {
  TestServerOptions options = LongAnswers();
  options.num_blocks = 16385;
  options.max_num_seqs = 256;
  options.front.stream_buffer_bytes = 16 << 10;
  options.front.slow_reader_timeout_seconds = 5;  // the streams that do read may be slow too
  TestServer server(options);
  ASSERT_TRUE(Stream(server.inference(), AskFor(100)).status.ok());
  const int64_t before = ResidentBytes();
  std::vector<std::unique_ptr<H2Client>> readers;
  const std::string request = AskFor(5000).SerializeAsString();
  for (int i = 0; i < 10; ++i) {
    readers.push_back(std::make_unique<H2Client>(server.front().port(), i % 2 == 0 ? 0 : 65535));
    for (int k = 0; k < 100; ++k) {
      readers.back()->AddMessage(readers.back()->AddHeaders(kGenerate), request);
    }
    ASSERT_TRUE(readers.back()->Send(false));
  }
  // Those without a window never end by themselves.
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() >= 500; }));
  int64_t peak = 0;
  for (int i = 0; i < 20; ++i) {
    const StreamedOutput out = Stream(server.inference(), AskFor(200));
    EXPECT_TRUE(out.status.ok()) << out.status.error_message();
    EXPECT_EQ(out.ids.size(), 200u);
    peak = std::max(peak, ResidentBytes());
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
  peak = std::max(peak, ResidentBytes());
  // 1,000 streams with at most 16 KiB of our buffers, a window of 64 KiB for half of them, and 18
  // KB of gRPC's for each.
  EXPECT_LT(peak - before, kMemoryFactor * (120 << 20));
  server.ExpectNothingLeft();
}

TEST(DisconnectTest, FinAndResetFreeTheRequests) {
  TestServer server;
  server.gate().Allow(3);
  auto fin = std::make_unique<H2Client>(server.front().port());
  H2Client reset(server.front().port());
  for (H2Client* client : {fin.get(), &reset}) {
    for (int i = 0; i < 5; ++i) {
      client->AddMessage(client->AddHeaders(kGenerate), AskFor(1000).SerializeAsString());
    }
    ASSERT_TRUE(client->Send(true));
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 10; }));
  reset.Vanish();
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 5; }));
  fin.reset();
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
