// Worker processes under supervision: they inherit only their descriptors, end with their parent,
// and are replaced when they die or hang, until that happens too often.
// Covers engine/worker/process/output_lines.cc, engine/worker/process/worker_group.cc,
// engine/worker/process/worker_process.cc
#include "engine/worker/process/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/worker/process/restarting_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/worker/living_workers.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Workers;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::vector<WorkerOrder> Orders(const std::string& device, int32_t ranks, bool start) {
  std::vector<WorkerOrder> orders;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    WorkerOrder order{.start = start, .device = device};
    order.spec.model_dir = QUIRE_SOURCE_DIR "/models/demo";
    order.spec.tp = {.rank = rank, .size = ranks};
    order.spec.num_blocks = 65;
    order.spec.worker = {.max_num_seqs = 8,
                         .max_num_batched_tokens = 64,
                         .max_model_len = 1024,
                         .vocab_size = 2048,
                         .steps_in_flight = 2};
    orders.push_back(order);
  }
  return orders;
}

SupervisorOptions Options() {
  return {.program = QUIRE_BINARY_DIR "/tests/engine/worker/scripted_worker",
          .first_backoff_seconds = 0.001};
}

std::unique_ptr<Supervisor> Describe(const std::string& device, int32_t ranks = 1,
                                     const SupervisorOptions& options = Options()) {
  return std::make_unique<Supervisor>(options, Orders(device, ranks, false));
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(SupervisorTest, DescribesTheDeviceOfTheRankWithTheLeastMemory) {
  const auto supervisor = Describe("steady", 3);
  const absl::StatusOr<DeviceFacts> facts = supervisor->AwaitFacts();
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->kind, "steady");
  EXPECT_EQ(facts->total_bytes, 1000);
  EXPECT_EQ(facts->free_bytes, 898);
}

TEST(SupervisorTest, WorkersInheritOnlyTheirDescriptors) {
  const int leak = dup(2);  // as a library might, without O_CLOEXEC
  const auto supervisor = Describe("steady");
  EXPECT_EQ(supervisor->AwaitFacts()->name, "0 1 2 3 4 5 ");
  close(leak);
}

TEST(SupervisorTest, ReportsTheTimeOfLoading) {
  const auto supervisor = Describe("steady", 2);
  ASSERT_TRUE(supervisor->AwaitFacts().ok());
  supervisor->Load(Orders("steady", 2, true));
  const absl::StatusOr<WorkerReport> report = supervisor->AwaitReady();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->description, "scripted");
  EXPECT_EQ(report->memory.at(0).second, 12345);
  EXPECT_EQ(report->seconds.at(0).first, "load");
  EXPECT_EQ(report->graphs.at(0).nodes, 300);
  EXPECT_EQ(report->gpus, (std::vector<std::string>{"GPU-0", "GPU-1"}));
  EXPECT_TRUE(supervisor->End().empty());
}

TEST(SupervisorTest, AGroupHasLateMasksIfAllItsDevicesReadTheBoard) {
  for (const std::string device : {"steady", "rank-1-reads-no-board"}) {
    const auto supervisor = Describe(device, 2);
    ASSERT_TRUE(supervisor->AwaitFacts().ok());
    std::vector<WorkerOrder> orders = Orders(device, 2, true);
    for (WorkerOrder& order : orders) order.spec.worker.late_masks = true;
    supervisor->Load(orders);
    const absl::StatusOr<WorkerReport> report = supervisor->AwaitReady();
    ASSERT_TRUE(report.ok()) << report.status();
    const std::unique_ptr<Transport> group = supervisor->Take();
    EXPECT_EQ(report->late_masks, device == "steady");
    EXPECT_EQ(group->masks() != nullptr, device == "steady");
  }
}

TEST(SupervisorTest, AGroupIsStartedOnlyWhenItMay) {
  std::atomic<int> asked{0};
  SupervisorOptions options = Options();
  options.may_start = [&] { return ++asked > 3; };
  const auto supervisor = Describe("steady", 1, options);
  EXPECT_TRUE(supervisor->AwaitFacts().ok());
  EXPECT_EQ(asked, 4);
}

TEST(SupervisorTest, AMissingProgramIsAnError) {
  SupervisorOptions options = Options();
  options.program = "/nonexistent/quire-worker";
  const absl::Status status = Describe("steady", 1, options)->AwaitFacts().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr("/nonexistent/quire-worker"));
}

TEST(SupervisorTest, AnAbsentDeviceIsAnErrorInTheWorkersWords) {
  const absl::Status status = Describe("absent")->AwaitFacts().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(status), HasSubstr("there is no such device here"));
  EXPECT_EQ(Describe("quantum")->AwaitFacts().status().code(), absl::StatusCode::kUnimplemented);
}

TEST(SupervisorTest, AWorkerThatDiesAtStartIsAnErrorWithItsLastWords) {
  const auto supervisor = Describe("dies-describing");
  const std::string message = MessageOf(supervisor->AwaitFacts().status());
  EXPECT_THAT(message, AllOf(HasSubstr("worker 0 (pid "), HasSubstr("exited with code 7"),
                             HasSubstr("no license for this device")));
  EXPECT_EQ(MessageOf(supervisor->AwaitReady().status()), message);
  EXPECT_EQ(supervisor->End(), message);
}

// It ends before or after it is sent its order.
TEST(SupervisorTest, AProgramThatEndsAtOnceIsAnErrorThatSaysHow) {
  SupervisorOptions options = Options();
  options.program = "/bin/false";
  for (int i = 0; i < 20; ++i) {
    const std::string message = MessageOf(Describe("steady", 1, options)->AwaitFacts().status());
    EXPECT_THAT(message, AllOf(HasSubstr("worker 0 (pid "), HasSubstr("exited with code 1")));
  }
}

TEST(SupervisorTest, ADeviceThatIsTooSmallIsAnErrorInTheWorkersWords) {
  const auto supervisor = Describe("too-small");
  ASSERT_TRUE(supervisor->AwaitFacts().ok());
  supervisor->Load(Orders("too-small", 1, true));
  const absl::Status status = supervisor->AwaitReady().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(status), HasSubstr("no room for 12345 bytes of weights"));
}

TEST(SupervisorTest, DestructionEndsAWorkerThatHangs) {
  auto supervisor = Describe("hangs-describing");
  while (Workers().empty()) usleep(1000);
  supervisor.reset();
  EXPECT_TRUE(Workers().empty());
}

// What AwaitReady returns when a rank of three does not start.
absl::Status StartWith(const std::string& device, bool describes) {
  SupervisorOptions options = Options();
  options.step_timeout_seconds = 1;
  const auto supervisor = Describe(device, 3, options);
  const absl::Status facts = supervisor->AwaitFacts().status();
  EXPECT_EQ(facts.ok(), describes) << facts;
  if (!facts.ok()) return facts;
  supervisor->Load(Orders(device, 3, true));
  return supervisor->AwaitReady().status();
}

TEST(SupervisorTest, ARankThatHoldsUpTheStartIsNamedWithItsPhase) {
  const std::pair<const char*, const char*> phases[] = {
      {"rank-1-hangs-describing", "it has not described its device after "},
      {"rank-1-hangs-loading", "it has not shared its bytes of round 1 after "},
      {"rank-1-hangs-sharing", "it has not shared its bytes of round 2 after "},
      {"rank-1-hangs-before-ready", "it is not ready after "},
      {"rank-1-hangs-in-a-collective", "it loads its model and has not begun collective 4 after "}};
  for (const auto& [device, phase] : phases) {
    const bool describes = device != std::string("rank-1-hangs-describing");
    const absl::Status status = StartWith(device, describes);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(MessageOf(status),
                AllOf(HasSubstr("worker 1 (pid "), HasSubstr(") holds up the start: "),
                      HasSubstr(phase), HasSubstr(" ms, for which the others took at most ")));
    EXPECT_TRUE(Workers().empty());
  }
}

TEST(SupervisorTest, AStoppedRankThatHoldsUpTheStartIsNamed) {
  SupervisorOptions options = Options();
  options.step_timeout_seconds = 2;
  const auto supervisor = Describe("rank-1-hangs-describing", 2, options);
  while (Workers().size() < 2) usleep(1000);
  for (const pid_t pid : Workers()) kill(pid, SIGSTOP);
  const std::string message = MessageOf(supervisor->AwaitFacts().status());
  EXPECT_THAT(message, HasSubstr(") is stopped by a signal and holds up the start"));
}

TEST(SupervisorTest, OneRankMayStartAsLongAsItLikes) {
  SupervisorOptions options = Options();
  options.step_timeout_seconds = 0.05;
  const auto supervisor = Describe("steady", 1, options);
  while (Workers().empty()) usleep(1000);
  const pid_t worker = Workers().front();
  kill(worker, SIGSTOP);
  usleep(300'000);
  kill(worker, SIGCONT);
  EXPECT_TRUE(supervisor->AwaitFacts().ok());
}

TEST(SupervisorTest, RanksThatMakeDifferentExchangesAreAnError) {
  const absl::Status status = StartWith("rank-1-shares-less", /*describes=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(MessageOf(status), HasSubstr("one rank is ready and another one still shares bytes"));
}

TEST(SupervisorTest, OutputOfWorkersReachesTheLogAndNeverBlocksThem) {
  ::testing::internal::CaptureStderr();
  const auto supervisor = Describe("chatters");
  ASSERT_TRUE(supervisor->AwaitFacts().ok());
  supervisor->Load(Orders("chatters", 1, true));
  EXPECT_TRUE(supervisor->AwaitReady().ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("WARNING worker says rank=0 pid="),
                         HasSubstr("line=\"loading tensor number 3000 of many\"")));
}

TEST(OutputLinesTest, SeverityComesFromTheLine) {
  EXPECT_EQ(SeverityOfLine("2026-11-20T18:47:17.474Z INFO model loaded"), Severity::kInfo);
  EXPECT_EQ(SeverityOfLine("2026-11-20T18:47:17.474Z ERROR oh"), Severity::kError);
  EXPECT_EQ(SeverityOfLine("engine/x.cc:1: CHECK failed: a"), Severity::kWarning);
  EXPECT_EQ(SeverityOfLine(""), Severity::kWarning);
  EXPECT_EQ(SeverityOfLine(" "), Severity::kWarning);
}

// An engine over worker processes that sample positions: a prompt of n tokens is continued by n,
// n + 1, n + 2, ..., whatever happens to the workers meanwhile.
class EngineOverProcesses : public ::testing::Test, public OutputSink {
 protected:
  void Start(const std::string& device, int32_t ranks, SupervisorOptions options = Options()) {
    auto supervisor = Describe(device, ranks, options);
    ASSERT_TRUE(supervisor->AwaitFacts().ok());
    supervisor->Load(Orders(device, ranks, true));
    ASSERT_TRUE(supervisor->AwaitReady().ok());
    supervisor_ = supervisor.get();
    const SchedulerConfig config{.num_blocks = 65,
                                 .block_size = 16,
                                 .max_model_len = 1024,
                                 .max_num_seqs = 8,
                                 .max_num_batched_tokens = 64,
                                 .max_num_queued_reqs = 64};
    engine_ = std::make_unique<Engine>(config, EngineLimits{64, 1 << 20, 1024},
                                       std::make_unique<RestartingTransport>(std::move(supervisor)),
                                       this, /*graph_sizes=*/std::vector<int32_t>());
  }
  void TearDown() override {
    Release();
    engine_.reset();
    EXPECT_TRUE(Workers().empty());
  }
  absl::Status Submit(RequestId id, int prompt, int max_tokens) {
    auto request = std::make_unique<Request>();
    request->id = id;
    request->prompt.assign(prompt, 1);
    request->sampling.max_tokens = max_tokens;
    request->arrival_ns = SteadyNowNs();
    return engine_->Submit(std::move(request));
  }
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    std::unique_lock lock(mutex_);
    for (const TokenEvent& event : tokens) {
      EXPECT_EQ(event.index, static_cast<int32_t>(streams_[event.id].size()));
      streams_[event.id].push_back(event.token);
    }
    for (const FinishEvent& event : finishes) ends_[event.id] = event.reason;
    changed_.notify_all();
    changed_.wait(lock, [&] {
      return std::ranges::none_of(
          tokens, [&](const TokenEvent& event) { return streams_[event.id].size() >= hold_at_; });
    });
  }
  // Lets no stream grow beyond so many tokens until Release. A test that disturbs the workers late,
  // on a busy machine, still does so before its requests end.
  void HoldAt(size_t tokens) {
    const std::lock_guard lock(mutex_);
    hold_at_ = tokens;
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    hold_at_ = std::numeric_limits<size_t>::max();
    changed_.notify_all();
  }
  void Await(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }
  void AwaitTokens(RequestId id, size_t count) {
    Await([&] { return streams_[id].size() >= count || ends_.contains(id); });
  }
  FinishReason AwaitEnd(RequestId id) {
    Await([&] { return ends_.contains(id); });
    return ends_[id];
  }
  void ExpectPositions(RequestId id, int prompt, int count) {
    EXPECT_EQ(AwaitEnd(id), FinishReason::kMaxTokens);
    ASSERT_EQ(streams_[id].size(), static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) EXPECT_EQ(streams_[id][i], prompt + i);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<int32_t>> streams_;
  std::map<RequestId, FinishReason> ends_;
  size_t hold_at_ = std::numeric_limits<size_t>::max();
  Supervisor* supervisor_ = nullptr;  // the engine's
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineOverProcesses, StreamsPositions) {
  Start("steady", 2);
  for (RequestId id = 1; id <= 8; ++id) ASSERT_TRUE(Submit(id, 10 * id, 100).ok());
  for (RequestId id = 1; id <= 8; ++id) ExpectPositions(id, 10 * id, 100);
  EXPECT_EQ(supervisor_->restarts(), 0u);
}

TEST_F(EngineOverProcesses, AKilledWorkerIsReplacedAndStreamsContinue) {
  Start("steady", 2);
  HoldAt(800);
  ASSERT_TRUE(Submit(1, 10, 900).ok());
  ASSERT_TRUE(Submit(2, 20, 900).ok());
  AwaitTokens(1, 50);
  const std::vector<pid_t> before = Workers();
  ASSERT_EQ(before.size(), 2u);
  kill(before[1], SIGKILL);
  Release();
  ExpectPositions(1, 10, 900);
  ExpectPositions(2, 20, 900);
  EXPECT_EQ(supervisor_->restarts(), 1u);
  for (const pid_t pid : Workers()) EXPECT_THAT(before, ::testing::Not(::testing::Contains(pid)));
  EXPECT_TRUE(engine_->Stats().fault.empty());
}

// Doubled for each death, the wait before the last restart would be two hours.
TEST_F(EngineOverProcesses, ManyDeathsThatAreAllowedEndNoRequest) {
  SupervisorOptions options = Options();
  options.max_failures = 24;
  options.longest_backoff_seconds = 0.001;
  Start("steady", 1, options);
  for (RequestId id = 1; id <= 24; ++id) {
    HoldAt(300);
    ASSERT_TRUE(Submit(id, 10, 400).ok());
    AwaitTokens(id, 5);
    kill(Workers().at(0), SIGKILL);
    Release();
    ExpectPositions(id, 10, 400);
  }
  EXPECT_EQ(supervisor_->restarts(), 24u);
}

TEST_F(EngineOverProcesses, AStoppedWorkerIsNamedAndReplaced) {
  for (const size_t rank : {0, 1}) {
    ::testing::internal::CaptureStderr();
    SupervisorOptions options = Options();
    options.step_timeout_seconds = 2;
    Start("steady", 2, options);
    if (HasFatalFailure()) return;
    HoldAt(800);
    const RequestId id = 1 + rank;
    ASSERT_TRUE(Submit(id, 10, 900).ok());
    AwaitTokens(id, 50);
    const std::vector<pid_t> before = Workers();
    kill(before.at(rank), SIGSTOP);
    Release();
    ExpectPositions(id, 10, 900);
    EXPECT_EQ(supervisor_->restarts(), 1u);
    engine_.reset();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("reason=\"worker " + std::to_string(rank) + " (pid " +
                          std::to_string(before[rank]) +
                          ") is stopped by a signal and holds up its group, which has finished no "
                          "step for "));
  }
}

TEST_F(EngineOverProcesses, TheRankThatOthersWaitForIsNamed) {
  ::testing::internal::CaptureStderr();
  SupervisorOptions options = Options();
  options.step_timeout_seconds = 2;
  options.max_failures = 0;
  Start("hangs-at-step-20", 3, options);
  ASSERT_TRUE(Submit(1, 10, 40).ok());
  EXPECT_EQ(AwaitEnd(1), FinishReason::kEngineFault);
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(engine_->Stats().fault,
              AllOf(HasSubstr("worker 1 (pid "), HasSubstr(") and worker 2 (pid "),
                    HasSubstr(") hold up their group, which has finished no step for "),
                    HasSubstr(" ms (step 20 of "),
                    HasSubstr("; worker 0 has launched 19 steps, begun 5 collectives, finished 19 "
                              "steps; worker 1 has launched 19 steps, begun 3 collectives")));
}

TEST_F(EngineOverProcesses, RequestsWaitWhileTheWorkersRestart) {
  SupervisorOptions options = Options();
  options.first_backoff_seconds = 0.3;
  Start("steady", 1, options);
  HoldAt(800);
  ASSERT_TRUE(Submit(1, 10, 900).ok());
  AwaitTokens(1, 50);
  kill(Workers().at(0), SIGKILL);
  Release();
  while (!engine_->Stats().recovering && supervisor_->restarts() == 0) usleep(1000);
  EXPECT_TRUE(Submit(2, 20, 30).ok());
  ExpectPositions(2, 20, 30);
  ExpectPositions(1, 10, 900);
  EXPECT_FALSE(engine_->Stats().recovering);
}

TEST_F(EngineOverProcesses, AnIdleEngineRecoversToo) {
  Start("steady", 1);
  kill(Workers().at(0), SIGKILL);
  while (supervisor_->restarts() == 0 || engine_->Stats().recovering) usleep(1000);
  ASSERT_TRUE(Submit(1, 10, 30).ok());
  ExpectPositions(1, 10, 30);
}

// A worker dies at its twentieth step. A request that ran at three deaths is taken for their cause;
// later requests are served.
TEST_F(EngineOverProcesses, ARequestEndsAfterThreeDeathsAndItsNeighboursContinue) {
  Start("dies-at-step-20", 1);
  ASSERT_TRUE(Submit(1, 10, 900).ok());
  EXPECT_EQ(AwaitEnd(1), FinishReason::kEngineFault);
  for (size_t i = 0; i < streams_[1].size(); ++i) {
    EXPECT_EQ(streams_[1][i], 10 + static_cast<int32_t>(i));
  }
  ASSERT_TRUE(Submit(2, 10, 10).ok());
  ExpectPositions(2, 10, 10);
  EXPECT_EQ(supervisor_->restarts(), 3u);
}

TEST_F(EngineOverProcesses, TooManyDeathsStopTheRestarts) {
  Start("dies-at-step-20", 1);
  for (RequestId id = 1; ends_.count(id) == 0 && id < 10; ++id) {
    ASSERT_TRUE(Submit(id, 10, 900).ok());
    EXPECT_EQ(AwaitEnd(id), FinishReason::kEngineFault);
    if (!engine_->Stats().fault.empty()) break;
  }
  while (engine_->Stats().fault.empty()) usleep(1000);
  EXPECT_THAT(engine_->Stats().fault,
              AllOf(HasSubstr("failed 4 times within 300 s"), HasSubstr("fell off the bus"),
                    HasSubstr("killed by signal 6 (Aborted)")));
  const absl::Status refused = Submit(99, 10, 10);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(engine_->Stats().recovering);
}

TEST_F(EngineOverProcesses, RanksThatDisagreeAreReplacedAndCounted) {
  const std::pair<const char*, const char*> lies[] = {
      {"disagrees-at-step-20",
       "ranks disagree at step 20: rank 0 and rank 1 sampled the same rows and tokens in different "
       "graphs"},
      {"draws-otherwise-at-step-20",
       "ranks disagree at step 20: row 0 drew token 29 on rank 0 and token 30 on rank 1"}};
  RequestId id = 0;
  for (const auto& [device, fault] : lies) {
    ::testing::internal::CaptureStderr();
    Start(device, 2);
    ASSERT_TRUE(Submit(++id, 10, 40).ok());  // 18 tokens of each life are believed
    ExpectPositions(id, 10, 40);
    EXPECT_EQ(supervisor_->restarts(), 2u);
    EXPECT_EQ(engine_->Stats().rank_mismatches, 2u);
    engine_.reset();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(fault));
  }
}

}  // namespace
}  // namespace quire
