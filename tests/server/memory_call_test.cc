// Control.GetMemory over real gRPC: the KV of both tiers by owner, and its use over time.
// Covers server/metrics/latest_view.cc
#include "server/front/memory_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "server/metrics/live_figures.h"
#include "server/metrics/metrics.h"
#include "tests/server/session_client.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

v1::Memory Ask(TestServer& server) {
  grpc::ClientContext context;
  v1::Memory memory;
  const grpc::Status status = server.control().GetMemory(&context, {}, &memory);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return memory;
}

std::map<std::string, uint64_t> BlocksOf(const v1::Memory& memory, int tier) {
  std::map<std::string, uint64_t> blocks;
  uint64_t sum = 0;
  if (memory.tiers_size() <= tier) return blocks;
  for (const v1::Memory::Owner& owner : memory.tiers(tier).owners()) {
    blocks[owner.name()] = owner.blocks();
    sum += owner.blocks();
    EXPECT_EQ(owner.bytes(), owner.blocks() * memory.tiers(tier).block_bytes());
  }
  EXPECT_EQ(sum, memory.tiers(tier).total_blocks());
  return blocks;
}

// 33 tokens with a KV of 32: two blocks of 16.
TEST(MemoryCallTest, NamesTheOwnersOfBothTiers) {
  TestServer server({.num_pages = 24});
  SessionClient client(server);
  client.Create("a");
  ASSERT_TRUE(client.Say("a", "hi", 30).status.ok());
  const v1::Memory memory = Ask(server);
  ASSERT_EQ(memory.tiers_size(), 2);
  EXPECT_EQ(memory.tiers(0).name(), "device");
  EXPECT_EQ(memory.tiers(1).name(), "host");
  std::map<std::string, uint64_t> device = BlocksOf(memory, 0);
  EXPECT_EQ(device["session"], 2u);
  EXPECT_EQ(device["free"], 254u);
  std::map<std::string, uint64_t> host = BlocksOf(memory, 1);
  EXPECT_EQ(host["unused"] + host["not_ready"], 24u);
  EXPECT_EQ(memory.plan().total_bytes(), 3000u);
  EXPECT_GT(memory.resident_bytes(), 1u << 20);
  EXPECT_EQ(memory.seconds(), 0u);
  EXPECT_EQ(memory.series_size(), 0);
}

TEST(MemoryCallTest, ShowsTheBlocksOfARunningRequest) {
  TestServer server;
  server.gate().Allow(1);
  std::thread reader([&] { (void)Stream(server.inference(), AskFor(40)); });
  EXPECT_TRUE(TestServer::Eventually([&] {
    const v1::Memory memory = Ask(server);
    EXPECT_EQ(memory.tiers_size(), 1);  // no host memory
    return BlocksOf(memory, 0)["running"] > 0;
  }));
  server.gate().Allow(-1);
  reader.join();
}

TEST(MemoryCallTest, SummarisesTheLastSeconds) {
  TestServer server;
  LiveFigures& live = server.metrics().live();
  EngineStats stats;
  stats.load.total_blocks = 100;
  for (int i = 0; i < 5; ++i) {
    stats.load.free_blocks = 100 - 10 * i;
    stats.tiering.stored_bytes += 1000 * i;
    live.history.Add(stats, live.first_token, live.inter_token, (i + 1) * kSecond);
  }
  const v1::Memory memory = Ask(server);
  EXPECT_EQ(memory.seconds(), 4u);
  ASSERT_EQ(memory.series_size(), 5);
  EXPECT_EQ(memory.series(0).name(), "used_blocks");
  EXPECT_EQ(memory.series(0).min(), 10);
  EXPECT_EQ(memory.series(0).mean(), 25);
  EXPECT_EQ(memory.series(0).max(), 40);
  EXPECT_EQ(memory.series(0).last(), 40);
  EXPECT_EQ(memory.series(3).name(), "stored_bytes_per_second");
  EXPECT_DOUBLE_EQ(memory.series(3).mean(), 2500);
}

TEST(MemoryCallTest, CountsAmongTheCalls) {
  TestServer server;
  EXPECT_EQ(Ask(server).tiers_size(), 1);
  EXPECT_NE(server.Metrics().find("method=\"GetMemory\""), std::string::npos);
}

TEST(LatestViewTest, AsksTheEngineAtMostOnceASecond) {
  TestServer server;
  LatestView latest;
  const int64_t start_ns = SteadyNowNs();
  EXPECT_EQ(latest.Get(server.engine(), start_ns), nullptr);  // asked now
  ASSERT_TRUE(
      TestServer::Eventually([&] { return latest.Get(server.engine(), start_ns) != nullptr; }));
  const LatestView::View first = latest.Get(server.engine(), start_ns);
  EXPECT_EQ(latest.Get(server.engine(), first->taken_ns + kSecond / 2), first);
  // Two seconds later the old one is still the answer, and the next one is asked for.
  EXPECT_EQ(latest.Get(server.engine(), first->taken_ns + 2 * kSecond), first);
  EXPECT_TRUE(TestServer::Eventually(
      [&] { return latest.Get(server.engine(), first->taken_ns + 2 * kSecond) != first; }));
}

TEST(LatestViewTest, AViewOfLongAgoIsNone) {
  TestServer server;
  LatestView latest;
  const int64_t now_ns = SteadyNowNs();
  ASSERT_TRUE(
      TestServer::Eventually([&] { return latest.Get(server.engine(), now_ns) != nullptr; }));
  EXPECT_EQ(latest.Get(server.engine(), now_ns + 60 * kSecond), nullptr);
}

}  // namespace
}  // namespace quire
