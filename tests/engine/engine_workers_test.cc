// EngineWorkers: the device that --device resolves to, and equal tokens from threads and processes.
#include "engine/engine_workers.h"

#include <algorithm>
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

using ::testing::AllOf;
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

bool HasGpu() { return std::filesystem::exists(kGpuDriver); }

// --device auto with a worker whose device "cuda" always works.
EngineConfig AutoConfig(const std::string& worker_process) {
  EngineConfig config = Config(worker_process);
  config.device = "auto";
  config.worker_program = QUIRE_BINARY_DIR "/tests/engine/worker/scripted_worker";
  return config;
}
constexpr char kSomeDriver[] = "/dev/null", kNoDriver[] = "/nonexistent";

class CollectingSink : public OutputSink {
 public:
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
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

// The demo model's answers to five prompts.
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
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &sink, setup->graph_sizes);
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

// Pages that the server wrote travel through the pool of each rank to other pages.
void MovePages(const EngineConfig& config) {
  const auto workers = *EngineWorkers::Find(config);
  EngineSetup setup = *PlanEngine(workers->config(), workers->device());
  ASSERT_GE(setup.memory.num_pages, 40);
  WorkerReport report;
  const std::unique_ptr<Transport> transport = *workers->Start(setup, &report);
  WakeEvent wake;
  transport->SetWake(&wake);
  const HostArenas& arenas = workers->arenas();
  ASSERT_EQ(arenas.size(), static_cast<size_t>(config.tensor_parallel_size));
  CopyJob load{.job = 1, .direction = CopyDirection::kLoad};
  CopyJob store{.job = 2, .direction = CopyDirection::kStore};
  for (PageId page = 0; page < 20; ++page) {
    for (size_t rank = 0; rank < arenas.size(); ++rank) {
      const std::span<std::byte> bytes = arenas[rank]->page(page);
      for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i * 7 + rank + page * 31);
      }
      arenas[rank]->Sign(page);
    }
    load.copies.push_back({1 + page, page});
    store.copies.push_back({1 + page, 39 - page});
  }
  for (const CopyJob& job : {load, store}) {
    ASSERT_TRUE(transport->Submit(job));
    CopyAck ack;
    while (!transport->PollCopy(ack)) wake.Wait(SteadyNowNs() + 1'000'000'000);
    EXPECT_EQ(ack.job, job.job);
    EXPECT_EQ(ack.status, CopyStatus::kOk);
    EXPECT_EQ(ack.bytes, 20 * setup.kv_layout.block_bytes() * config.tensor_parallel_size);
  }
  for (const auto& arena : arenas) {
    for (PageId page = 0; page < 20; ++page) {
      const std::span<const std::byte> from = arena->page(page), to = arena->page(39 - page);
      EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << page;
      EXPECT_TRUE(arena->Intact(39 - page));
    }
  }
}

TEST(EngineWorkersTest, PagesTravelThroughThePoolOfThreadsAndOfAProcess) {
  EngineConfig config = Config("off");
  config.kv_checksum = true;
  MovePages(config);
  config.worker_process = "on";
  MovePages(config);
  config.worker_process = "off";
  config.tensor_parallel_size = 2;
  MovePages(config);
}

TEST(EngineWorkersTest, WithoutHostMemoryNothingIsCopied) {
  EngineConfig config = Config("off");
  config.kv_offloading_size = 0;
  for (const char* process : {"off", "on"}) {
    config.worker_process = process;
    const auto workers = *EngineWorkers::Find(config);
    WorkerReport report;
    const std::unique_ptr<Transport> transport =
        *workers->Start(*PlanEngine(workers->config(), workers->device()), &report);
    EXPECT_TRUE(workers->arenas().empty());
    EXPECT_FALSE(transport->Submit({1, CopyDirection::kStore, {{1, 1}}}));
  }
}

TEST(EngineWorkersTest, CpuRanksAreThreadsByDefault) {
  EXPECT_EQ((*EngineWorkers::Find(Config("auto")))->device().kind, "");
  EXPECT_EQ((*EngineWorkers::Find(Config("on")))->device().kind, "cpu");
}

TEST(EngineWorkersTest, AutoTakesTheGpuThatAWorkerCanUse) {
  const auto workers = EngineWorkers::Find(AutoConfig("auto"), kSomeDriver);
  ASSERT_TRUE(workers.ok()) << workers.status();
  EXPECT_EQ((*workers)->config().device, "cuda");
  EXPECT_EQ((*workers)->device().kind, "cuda");
  EXPECT_EQ((*workers)->device().total_bytes, 1000);
}

TEST(EngineWorkersTest, AutoTakesTheCpuWhereThereIsNoDriver) {
  const auto workers = EngineWorkers::Find(AutoConfig("auto"), kNoDriver);
  ASSERT_TRUE(workers.ok()) << workers.status();
  EXPECT_EQ((*workers)->config().device, "cpu");
  EXPECT_EQ((*workers)->device().kind, "");
}

TEST(EngineWorkersTest, AutoTakesTheCpuWhereNoWorkerCanUseTheGpu) {
  EngineConfig no_program = AutoConfig("auto");
  no_program.worker_program = "/nonexistent/quire-worker";
  EngineConfig no_processes = AutoConfig("off");
  EngineConfig wide = AutoConfig("auto");
  wide.dtype = "float32";  // which the GPU does not do
  for (const EngineConfig& config : {no_program, no_processes, wide}) {
    const auto workers = EngineWorkers::Find(config, kSomeDriver);
    ASSERT_TRUE(workers.ok()) << workers.status();
    EXPECT_EQ((*workers)->config().device, "cpu");
  }
}

TEST(EngineWorkersTest, AutoSaysWhyItTookItsDevice) {
  const auto reason = [](const EngineConfig& config, const char* driver) {
    const auto workers = EngineWorkers::Find(config, driver);
    EXPECT_TRUE(workers.ok()) << workers.status();
    return (*workers)->device_reason();
  };
  EXPECT_EQ(reason(AutoConfig("auto"), kSomeDriver), "the GPU can run this model");
  EXPECT_THAT(reason(AutoConfig("auto"), kNoDriver), HasSubstr("no GPU driver (/nonexistent)"));
  EXPECT_THAT(reason(AutoConfig("off"), kSomeDriver), HasSubstr("--worker-process off"));
  EngineConfig many = AutoConfig("auto");
  many.max_num_seqs = 4097;  // which only the CPU's kernels take
  EXPECT_THAT(reason(many, kSomeDriver), HasSubstr("--max-num-seqs 4097: the CUDA attention"));
  EXPECT_EQ(reason(Config("off"), kSomeDriver), "");
}

TEST(EngineWorkersTest, ANamedGpuThatIsMissingIsAnError) {
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

TEST(EngineWorkersTest, AMissingWorkerProgramIsADeviceError) {
  EngineConfig config = Config("on");
  config.worker_program = "/nonexistent/quire-worker";
  const absl::Status status = EngineWorkers::Find(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/quire-worker"));
}

TEST(EngineWorkersTest, TooLittleMemoryIsReportedWithThePlan) {
  EngineConfig config = Config("on");
  config.num_blocks_override = 100'000'000;  // terabytes
  const absl::StatusOr<std::unique_ptr<EngineWorkers>> workers = EngineWorkers::Find(config);
  ASSERT_TRUE(workers.ok()) << workers.status();
  const absl::StatusOr<EngineSetup> setup =
      PlanEngine((*workers)->config(), (*workers)->device(), int64_t{1} << 60);
  ASSERT_TRUE(setup.ok()) << setup.status();
  WorkerReport report;
  const absl::Status status = (*workers)->Start(*setup, &report).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("worker 0 (pid "), HasSubstr("KV"), HasSubstr("\n  weights "),
                    HasSubstr("\n  kv_cache "), HasSubstr("\n  all of the above ")));
}

TEST(EngineWorkersTest, ErrorsOfAllDevicesComeBeforeTheDeviceIsAsked) {
  EngineConfig config = Config("on");
  config.model = "/nonexistent/model";
  EXPECT_EQ(EngineWorkers::Find(config).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quire
