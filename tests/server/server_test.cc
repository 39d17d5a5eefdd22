// The server's life inside one process: start, watch, drain, status page. server_process_test.py
// covers signals and exit codes.
// Covers server/start/text_parts.cc
#include "server/server.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "nlohmann/json.hpp"
#include "server/dry_run.h"
#include "server/front/listen_address.h"
#include "server/start/plan_serving.h"

namespace quire {
namespace {

Settings DemoSettings() {
  Settings settings;
  settings.engine.model = QUIRE_SOURCE_DIR "/models/demo";
  settings.engine.kv_cache_memory_bytes = 16 << 20;
  settings.server.front.port = 0;
  settings.server.metrics_port = 0;
  settings.server.shutdown_timeout_seconds = 5;
  return settings;
}

TEST(ServerTest, StartsAndDrainsWhenAsked) {
  Server server(DemoSettings(), SteadyNowNs());
  EXPECT_FALSE(server.Ready());
  const auto error = server.Start();
  ASSERT_FALSE(error) << error->status;
  EXPECT_TRUE(server.Ready());
  std::thread asker([&] { server.RequestDrain(); });
  EXPECT_EQ(server.Run(), ExitCode::kOk);
  asker.join();
}

TEST(ServerTest, ADrainRequestedBeforeRunIsNotLost) {
  Server server(DemoSettings(), SteadyNowNs());
  server.RequestDrain();
  ASSERT_FALSE(server.Start());
  EXPECT_EQ(server.Run(), ExitCode::kOk);
}

TEST(ServerTest, CanBeDestroyedBeforeStartAndBeforeRun) {
  { const Server never_started(DemoSettings(), SteadyNowNs()); }
  Server never_run(DemoSettings(), SteadyNowNs());
  EXPECT_FALSE(never_run.Start());
}

TEST(ServerTest, AMissingSocketFolderIsReportedBeforeTheModelIsRead) {
  Settings settings = DemoSettings();
  settings.engine.model = "/nonexistent";
  settings.server.front.uds = "/nonexistent-folder/quire.sock";
  const auto error = Server(settings, SteadyNowNs()).Start();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ExitCode::kCannotListen);
  EXPECT_NE(error->status.message().find("/nonexistent-folder/"), absl::string_view::npos);
}

TEST(ListenAddressTest, ASocketWithAFullQueueIsInUse) {
  const std::string path = testing::TempDir() + "/full-" + std::to_string(getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  const int live = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(live, where, sizeof(address)), 0);
  ASSERT_EQ(listen(live, 0), 0);
  std::vector<int> queued;
  int result = 0;
  while (result == 0) {
    queued.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    result = connect(queued.back(), where, sizeof(address));
  }
  EXPECT_EQ(CheckUnixSocketFree(path).code(), absl::StatusCode::kUnavailable);
  for (const int fd : queued) close(fd);
  close(live);
  EXPECT_TRUE(CheckUnixSocketFree(path).ok());
  unlink(path.c_str());
}

TEST(ServerTest, AddressesInUseAreReportedBeforeTheModelIsRead) {
  const auto taken = ListenTcp("127.0.0.1", 0, "--port");
  ASSERT_TRUE(taken.ok());
  Settings settings = DemoSettings();
  settings.engine.model = "/nonexistent";
  settings.server.front.port = *BoundPort(*taken, "127.0.0.1");
  Server server(settings, SteadyNowNs());
  const auto error = server.Start();
  close(*taken);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ExitCode::kCannotListen);
}

ExitCode PlanErrorOf(const EngineConfig& config) {
  StartError error;
  return PlanServing(config, &error) ? ExitCode::kOk : error.code;
}

TEST(ServerTest, PlanErrorsDistinguishModelSettingsAndDevice) {
  EngineConfig config = DemoSettings().engine;
  EXPECT_EQ(PlanErrorOf(config), ExitCode::kOk);
  config.max_model_len = 1 << 20;
  EXPECT_EQ(PlanErrorOf(config), ExitCode::kBadConfig);
  config = DemoSettings().engine;
  config.device = "cuda";
  EXPECT_EQ(PlanErrorOf(config), ExitCode::kDevice);
  config = DemoSettings().engine;
  config.model = QUIRE_SOURCE_DIR "/docs";
  EXPECT_EQ(PlanErrorOf(config), ExitCode::kModel);
}

TEST(DryRunTest, SaysWhyAutoTookItsDevice) {
  const ParsedSettings parsed = *ParseSettings({.arguments = {}, .environment = {}});
  EngineSetup setup;
  setup.device = "cpu";
  setup.device_reason = "head_dim 72: the CUDA attention kernels take multiples of 16 up to 256";
  const auto device = [&] {
    return nlohmann::json::parse(DryRunJson(parsed, setup, "none"))["device"];
  };
  EXPECT_EQ(device(), nlohmann::json({{"name", "cpu"}, {"reason", setup.device_reason}}));
  setup.device_reason.clear();
  EXPECT_EQ(device(), nlohmann::json({{"name", "cpu"}}));
}

TEST(DryRunTest, ShowsResolvedAndGivenSettings) {
  ParsedSettings parsed = *ParseSettings(
      {.arguments = {"--max-num-seqs", "8", "--drain-delay=1.5s"}, .environment = {}});
  parsed.settings.engine.model = QUIRE_SOURCE_DIR "/models/demo";
  StartError error;
  const auto setup = PlanServing(parsed.settings.engine, &error);
  ASSERT_TRUE(setup) << error.status;
  const auto plan = nlohmann::json::parse(DryRunJson(parsed, *setup, "usable"));
  EXPECT_EQ(plan["config"]["max-num-seqs"], 8);
  EXPECT_EQ(plan["config"]["drain-delay"], 1.5);
  EXPECT_EQ(plan["config"]["device"], "cpu");
  EXPECT_EQ(plan["config"]["reflection"], true);
  EXPECT_EQ(plan["config"]["served-model-name"], "demo");
  EXPECT_EQ(plan["model"]["chat_template"], "usable");
  EXPECT_EQ(plan["sources"], nlohmann::json({{"max-num-seqs", "flag"}, {"drain-delay", "flag"}}));
  int64_t total = 0;
  for (const auto& [part, bytes] : plan["memory_plan"]["bytes_per_rank"].items()) {
    total += bytes.get<int64_t>();
  }
  EXPECT_EQ(plan["memory_plan"]["total_bytes_per_rank"], total);
  EXPECT_EQ(plan["config"]["session-ttl"], 3600);
  EXPECT_EQ(plan["config"]["max-session-tokens"], 64 << 20);
}

TEST(DryRunTest, ShowsResolvedHostMemory) {
  ParsedSettings parsed = *ParseSettings({});
  parsed.settings = DemoSettings();
  const auto plan_of = [&parsed] {
    StartError error;
    const auto setup = PlanServing(parsed.settings.engine, &error);
    return nlohmann::json::parse(DryRunJson(parsed, setup.value(), "usable"));
  };
  // Not set: as much as a pool of 16 MiB, in whole pages of 16 tokens (as below).
  const int64_t page = 16 * 2 * 5 * 2 * 64 * 4;
  const int64_t pages = (16 << 20) / page - 1;  // block 0 holds nothing
  auto plan = plan_of();
  EXPECT_EQ(plan["memory_plan"]["num_pages"], pages);
  EXPECT_EQ(plan["memory_plan"]["host_bytes"], pages * page);
  EXPECT_EQ(plan["memory_plan"]["host_kv_tokens"], pages * 16);
  EXPECT_EQ(plan["config"]["kv-offloading-size"], static_cast<double>(pages * page) / (1 << 30));
  parsed.settings.engine.kv_offloading_size = 0.5;
  EXPECT_EQ(plan_of()["memory_plan"]["num_pages"], (512 << 20) / page);
  parsed.settings.engine.kv_offloading_size = 0;
  EXPECT_EQ(plan_of()["memory_plan"]["host_bytes"], 0);
  // More memory than any machine has.
  parsed.settings.engine.kv_offloading_size = 65536;
  EXPECT_EQ(PlanErrorOf(parsed.settings.engine), ExitCode::kBadConfig);
}

// Thread counts follow from the cores that the process may use, not from those of the machine.
TEST(DryRunTest, ResolvesZeroAndEmptySettings) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  ParsedSettings parsed = *ParseSettings({});
  parsed.settings = DemoSettings();
  const auto config_of = [&parsed] {
    StartError error;
    const auto setup = PlanServing(parsed.settings.engine, &error);
    return nlohmann::json::parse(DryRunJson(parsed, setup.value(), "usable"))["config"];
  };
  EXPECT_EQ(config_of()["cpu-threads"], 1);
  EXPECT_EQ(config_of()["text-threads"], 1);
  parsed.settings.engine.kv_cache_memory_bytes = 0;
  parsed.settings.engine.num_blocks_override = 300;
  parsed.settings.engine.cpu_threads = 7;
  parsed.settings.server.front.text_threads = 3;
  parsed.settings.server.served_model_names = {"other"};
  EXPECT_EQ(config_of()["cpu-threads"], 7);
  EXPECT_EQ(config_of()["text-threads"], 3);
  EXPECT_EQ(config_of()["served-model-name"], "other");
  // 300 blocks of 16 tokens, K and V of 5 layers and 2 heads of 64 in float32.
  EXPECT_EQ(config_of()["kv-cache-memory-bytes"], 300 * 16 * 2 * 5 * 2 * 64 * 4);
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace
}  // namespace quire
