// EngineWorkers: which device --device means, and the same tokens from ranks of either kind.
#include "engine/engine_workers.h"

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

EngineConfig Config(const std::string& worker_process) {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/models/demo";
  config.device = "cpu";
  config.cpu_threads = 1;
  config.max_model_len = 256;
  config.max_num_seqs = 8;
  config.worker_process = worker_process;
  config.worker_program = QUIRE_BINARY_DIR "/bin/quire-worker";
  return config;
}

bool HasGpu() { return std::filesystem::exists("/dev/nvidia0"); }

class CollectingSink : public OutputSink {
 public:
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) tokens_[event.id].push_back(event.token);
    ends_ += finishes.size();
    changed_.notify_all();
  }
  std::map<RequestId, std::vector<int32_t>> Await(size_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ == ends; });
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<int32_t>> tokens_;
  size_t ends_ = 0;
};

// What the demo model says to five prompts.
std::map<RequestId, std::vector<int32_t>> Tokens(const EngineConfig& config) {
  absl::StatusOr<std::unique_ptr<EngineWorkers>> workers = EngineWorkers::Find(config);
  EXPECT_TRUE(workers.ok()) << workers.status();
  const absl::StatusOr<EngineSetup> setup = PlanEngine((*workers)->config(), (*workers)->device());
  EXPECT_TRUE(setup.ok()) << setup.status();
  WorkerReport report;
  absl::StatusOr<std::unique_ptr<Transport>> transport = (*workers)->Start(*setup, &report);
  EXPECT_TRUE(transport.ok()) << transport.status();
  EXPECT_THAT(report.description, HasSubstr("cpu ("));
  CollectingSink sink;
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &sink);
  for (RequestId id = 1; id <= 5; ++id) {
    auto request = std::make_unique<Request>();
    request->id = id;
    for (int32_t i = 0; i < 20 + static_cast<int32_t>(id); ++i) {
      request->prompt.push_back(10 + i * static_cast<int32_t>(id));
    }
    request->sampling.row.temperature = id % 2 == 0 ? 0.0f : 0.8f;
    request->sampling.row.seed = id;
    request->sampling.max_tokens = 60;
    request->arrival_ns = SteadyNowNs();
    EXPECT_TRUE(engine.Submit(std::move(request)).ok());
  }
  return sink.Await(5);
}

TEST(EngineWorkersTest, AProcessGivesTheTokensOfAThread) {
  const auto threads = Tokens(Config("off"));
  EXPECT_EQ(threads.size(), 5u);
  EXPECT_EQ(Tokens(Config("on")), threads);
}

TEST(EngineWorkersTest, OnTheCpuRanksAreThreadsUnlessAskedOtherwise) {
  EXPECT_EQ((*EngineWorkers::Find(Config("auto")))->device().kind, "");
  EXPECT_EQ((*EngineWorkers::Find(Config("on")))->device().kind, "cpu");
}

TEST(EngineWorkersTest, AutoTakesTheCpuWithoutAGpu) {
  if (HasGpu()) GTEST_SKIP() << "there is a GPU here";
  EngineConfig config = Config("auto");
  config.device = "auto";
  EXPECT_EQ((*EngineWorkers::Find(config))->config().device, "cpu");
}

TEST(EngineWorkersTest, AGpuThatIsAskedForAndNotThereIsAnError) {
  if (HasGpu()) GTEST_SKIP() << "there is a GPU here";
  EngineConfig config = Config("auto");
  config.device = "cuda";
  const absl::Status status = EngineWorkers::Find(config).status();
  // Without the backend, or without the device.
  EXPECT_THAT(status.code(),
              AnyOf(absl::StatusCode::kUnimplemented, absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(status.message()),
              AnyOf(HasSubstr("--device cuda is not in this build"), HasSubstr("CUDA device 0")));
}

TEST(EngineWorkersTest, AMissingProgramIsAnErrorOfTheDevice) {
  EngineConfig config = Config("on");
  config.worker_program = "/nonexistent/quire-worker";
  const absl::Status status = EngineWorkers::Find(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/quire-worker"));
}

TEST(EngineWorkersTest, WhatIsWrongWithAnyDeviceIsSaidBeforeOneIsAsked) {
  EngineConfig config = Config("on");
  config.model = "/nonexistent/model";
  EXPECT_EQ(EngineWorkers::Find(config).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quire
