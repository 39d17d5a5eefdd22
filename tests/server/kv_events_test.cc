// KV events and FlushCache of quire.v1.Control over real gRPC.
// Covers server/kv_events/cache_flush.cc, server/kv_events/control_kv_calls.cc,
// server/kv_events/kv_event_stream.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/session_client.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;

// Prompts of `num_blocks` blocks that differ by their first token, with one token of output.
v1::GenerateRequest Prompt(uint32_t first, int num_blocks) {
  v1::GenerateRequest request = AskFor(1);
  request.clear_text();
  auto* ids = request.mutable_token_ids();
  ids->add_ids(first % 256);
  ids->add_ids(first / 256);
  for (int i = 2; i < num_blocks * 16; ++i) ids->add_ids(7);
  return request;
}

class Subscriber {
 public:
  Subscriber(TestServer& server, uint64_t sequence = 0, bool no_snapshot = false,
             const std::string& tenant = "")
      : stub_(v1::Control::NewStub(server.NewChannel(/*fixed_window=*/true))) {
    v1::SubscribeKvEventsRequest request;
    if (sequence > 0) request.set_sequence(sequence);
    request.set_no_snapshot(no_snapshot);
    if (!tenant.empty()) context_.AddMetadata(kTestTenant, tenant);
    reader_ = stub_->SubscribeKvEvents(&context_, request);
  }

  // Applies the next batch; false at the end of the call.
  bool Read() {
    v1::KvEventBatch batch;
    if (!reader_->Read(&batch)) return false;
    last_ = batch;
    for (const v1::KvEvent& event : batch.events()) Apply(event);
    return true;
  }
  // Reads until the blocks that begin a prompt are as many.
  void ReadPrompts(size_t count) {
    while (prompts_.size() != count) ASSERT_TRUE(Read()) << Finish().error_message();
  }
  grpc::Status Finish() { return reader_->Finish(); }
  void Cancel() { context_.TryCancel(); }
  const v1::KvEventBatch& last() const { return last_; }
  size_t num_blocks() const { return blocks_.size(); }
  // The first token of each prompt.
  std::vector<uint32_t> prompts() const {
    std::vector<uint32_t> tokens;
    for (const auto& [hash, token] : prompts_) tokens.push_back(token);
    std::ranges::sort(tokens);
    return tokens;
  }

 private:
  void Apply(const v1::KvEvent& event) {
    if (event.has_cleared()) {
      blocks_.clear();
      prompts_.clear();
    }
    const v1::KvEvent::Stored& stored = event.stored();
    EXPECT_EQ(stored.token_ids_size(), stored.blocks_size() * 16);
    for (int i = 0; i < stored.blocks_size(); ++i) {
      EXPECT_EQ(stored.tier(), v1::KvEvent::TIER_DEVICE);
      blocks_[stored.blocks(i)] = true;
      if (stored.depth() + i > 0) continue;
      EXPECT_EQ(stored.parent(), 0u);
      prompts_[stored.blocks(i)] = stored.token_ids(0);
    }
    for (const uint64_t hash : event.removed().blocks()) {
      EXPECT_EQ(blocks_.erase(hash), 1u);
      prompts_.erase(hash);
    }
  }

  const std::unique_ptr<v1::Control::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::KvEventBatch>> reader_;
  v1::KvEventBatch last_;
  std::map<uint64_t, bool> blocks_;
  std::map<uint64_t, uint32_t> prompts_;
};

void Compute(TestServer& server, uint32_t first, int num_blocks, const std::string& tenant = "") {
  grpc::ClientContext context;
  if (!tenant.empty()) context.AddMetadata(kTestTenant, tenant);
  const StreamedOutput done = Stream(server.inference(), Prompt(first, num_blocks), &context);
  ASSERT_TRUE(done.status.ok()) << done.status.error_message();
}

TEST(KvEventsTest, BeginWithASnapshotAndFollowEachChange) {
  TestServer server;
  Compute(server, 1, 3);
  Subscriber subscriber(server);
  ASSERT_TRUE(subscriber.Read());
  EXPECT_EQ(subscriber.last().snapshot().count(), 1u);
  EXPECT_TRUE(subscriber.last().events(0).has_cleared());
  EXPECT_EQ(subscriber.last().block_size(), 16u);
  EXPECT_GT(subscriber.last().unix_nanos(), 0);
  EXPECT_THAT(subscriber.prompts(), ElementsAre(1));
  EXPECT_EQ(subscriber.num_blocks(), 3u);
  const uint64_t snapshot = subscriber.last().sequence();
  Compute(server, 2, 2);
  ASSERT_TRUE(subscriber.Read());
  EXPECT_EQ(subscriber.last().sequence(), snapshot + 1);
  EXPECT_FALSE(subscriber.last().has_snapshot());
  EXPECT_THAT(subscriber.prompts(), ElementsAre(1, 2));
  EXPECT_EQ(subscriber.num_blocks(), 5u);

  // From a number, after an interruption.
  subscriber.Cancel();
  EXPECT_EQ(subscriber.Finish().error_code(), StatusCode::CANCELLED);
  Compute(server, 3, 1);
  Subscriber again(server, snapshot + 2, /*no_snapshot=*/true);
  ASSERT_TRUE(again.Read());
  EXPECT_EQ(again.last().sequence(), snapshot + 2);
  EXPECT_THAT(again.prompts(), ElementsAre(3));
}

TEST(KvEventsTest, RefuseANumberThatIsNotKeptOrBeginWithASnapshot) {
  TestServer server;
  Compute(server, 1, 1);
  Subscriber refused(server, 17, /*no_snapshot=*/true);
  EXPECT_FALSE(refused.Read());
  const grpc::Status status = refused.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Reason(status), "KV_EVENTS_MISSED");
  Subscriber anew(server, 17);
  ASSERT_TRUE(anew.Read());
  EXPECT_TRUE(anew.last().has_snapshot());
  EXPECT_THAT(anew.prompts(), ElementsAre(1));
}

TEST(KvEventsTest, ShowATenantItsOwnBlocksAlone) {
  TestServerOptions options;
  options.front.door = TenantInMetadata();
  TestServer server(options);
  Compute(server, 1, 1, "1");
  Compute(server, 2, 1, "2");
  Subscriber subscriber(server, 0, false, "2");
  subscriber.ReadPrompts(1);
  EXPECT_THAT(subscriber.prompts(), ElementsAre(2));
  Compute(server, 3, 1, "1");
  Compute(server, 4, 1, "2");
  subscriber.ReadPrompts(2);
  EXPECT_THAT(subscriber.prompts(), ElementsAre(2, 4));
}

TEST(KvEventsTest, EndASubscriberThatDoesNotRead) {
  TestServerOptions options;
  options.front.slow_reader_timeout_seconds = 0.2;
  TestServer server(options);
  Subscriber subscriber(server);
  subscriber.ReadPrompts(0);
  ASSERT_TRUE(subscriber.Read());
  // Some 300 KiB of events; the connection takes 64 KiB.
  for (uint32_t i = 0; i < 80; ++i) Compute(server, i, 60);
  EXPECT_TRUE(TestServer::Eventually([&] {
    return server.Metrics().find("method=\"SubscribeKvEvents\",code=\"RESOURCE_EXHAUSTED\"") !=
               std::string::npos ||
           server.Metrics().find("code=\"RESOURCE_EXHAUSTED\",method=\"SubscribeKvEvents\"") !=
               std::string::npos;
  }));
  while (subscriber.Read()) {
  }
  const grpc::Status status = subscriber.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(status), "SLOW_READER");
}

TEST(KvEventsTest, EndWithTheServer) {
  auto server = std::make_unique<TestServer>();
  Subscriber subscriber(*server);
  ASSERT_TRUE(subscriber.Read());
  server.reset();
  EXPECT_FALSE(subscriber.Read());
  EXPECT_EQ(subscriber.Finish().error_code(), StatusCode::UNAVAILABLE);
}

TEST(FlushCacheTest, DropsWhatNoRequestAndNoSessionUses) {
  TestServer server;
  SessionClient client(server);
  client.Create("talk");
  ASSERT_TRUE(client.Say("talk", std::string(40, 'x'), 5).status.ok());
  Compute(server, 1, 3);
  Subscriber subscriber(server);
  subscriber.ReadPrompts(2);
  const auto flush = [&](bool sessions, const char* tenant = nullptr) {
    grpc::ClientContext context;
    v1::FlushCacheRequest request;
    v1::FlushCacheResponse response;
    request.set_sessions(sessions);
    if (tenant != nullptr) request.set_tenant(tenant);
    const grpc::Status status = server.control().FlushCache(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  EXPECT_EQ(flush(true, "another").blocks(), 0u);
  v1::FlushCacheResponse flushed = flush(false, "");
  EXPECT_EQ(flushed.blocks(), 3u);
  EXPECT_EQ(flushed.kept_blocks(), 3u) << "of the session: 46 tokens";
  subscriber.ReadPrompts(1);
  EXPECT_EQ(subscriber.num_blocks(), 2u) << "whole blocks of the session";
  flushed = flush(true);
  EXPECT_EQ(flushed.blocks(), 3u);
  EXPECT_EQ(flushed.kept_blocks(), 0u);
  subscriber.ReadPrompts(0);
  EXPECT_TRUE(subscriber.last().events(0).has_cleared());
  // The session's next turn computes its KV again.
  ASSERT_TRUE(client.Say("talk", "y", 5).status.ok());
}

}  // namespace
}  // namespace quire
