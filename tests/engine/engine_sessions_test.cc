// Engine and sessions: operations run between steps, and copies continue without requests. Neither
// can stop the loop.
// Covers engine/schedule/sessions/session_requests.cc
#include <atomic>
#include <deque>
#include <random>

#include "engine/engine.h"
#include "engine/worker/in_process_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/engine_fakes.h"
#include "tests/engine/session_client.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kBlock = 16;

// Runs steps through an InProcessTransport. The test itself acks the copies.
class CopyingTransport : public Transport {
 public:
  explicit CopyingTransport(std::vector<std::unique_ptr<StepRunner>> runners)
      : steps_(std::move(runners), 2) {}

  void SetWake(WakeEvent* wake) override {
    wake_ = wake;
    steps_.SetWake(wake);
  }
  StepPlan* NextSlot() override { return steps_.NextSlot(); }
  void Publish() override { steps_.Publish(); }
  const StepResult* Poll() override { return steps_.Poll(); }
  const StepResult* ResultOf(int32_t rank) override { return steps_.ResultOf(rank); }
  void Release() override { steps_.Release(); }
  int in_flight() const override { return steps_.in_flight(); }
  bool Submit(const CopyJob& job) override {
    const std::lock_guard lock(mutex_);
    ++submitted_;
    if (refuse_.load()) return false;
    jobs_.push_back(job);
    changed_.notify_all();
    if (at_once_.load()) {
      const bool fails = fail_some_.load() && submitted_ % 3 == 0;
      acks_.push_back(fails ? CopyAck{.job = job.job, .status = CopyStatus::kFailed}
                            : GoodAck(job));
    }
    return true;
  }
  bool PollCopy(CopyAck& ack) override {
    const std::lock_guard lock(mutex_);
    if (acks_.empty()) return false;
    ack = acks_.front();
    acks_.pop_front();
    return true;
  }
  int32_t ready_pages() const override { return 64; }
  std::string fault() const override { return steps_.fault(); }
  bool Recover() override { return steps_.Recover(); }
  bool recovering() override { return steps_.recovering(); }

  // The `index`th job sent.
  CopyJob AwaitJob(size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.size() > index; });
    return jobs_[index];
  }
  void Ack(const CopyAck& ack) {
    {
      const std::lock_guard lock(mutex_);
      acks_.push_back(ack);
    }
    wake_->Notify();
  }
  static CopyAck GoodAck(const CopyJob& job) {
    const auto count = static_cast<int32_t>(job.copies.size());
    return {.job = job.job, .num_good = count, .bytes = count * 64, .ns = 1000};
  }
  void AckAtOnce() { at_once_.store(true); }
  void FailSome() { fail_some_.store(true); }
  void Refuse() { refuse_.store(true); }
  int submitted() {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }

 private:
  InProcessTransport steps_;
  WakeEvent* wake_ = nullptr;
  std::atomic<bool> at_once_{false}, fail_some_{false}, refuse_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CopyJob> jobs_;
  std::deque<CopyAck> acks_;
  int submitted_ = 0;
};

class EngineSessionsTest : public ::testing::Test {
 protected:
  void Start(std::vector<uint64_t> checksums = {0}) {
    SchedulerConfig config{.num_blocks = 65,
                           .block_size = kBlock,
                           .max_model_len = 256,
                           .max_num_seqs = 8,
                           .max_num_batched_tokens = 64,
                           .max_num_queued_reqs = 4096};
    config.num_pages = 64;
    config.sessions = {.max_sessions = 1000,
                       .max_sessions_per_tenant = 1000,
                       .max_session_tokens = 1 << 20,
                       .max_model_len = 256,
                       .default_ttl_seconds = 3600,
                       .max_ttl_seconds = 3600,
                       .default_idle_offload_seconds = 3600,
                       .max_pinned_share = 0.5};
    config.tiering.block_bytes = 64;
    config.tiering.job_timeout_seconds = copy_timeout_;
    std::vector<std::unique_ptr<StepRunner>> runners;
    for (const uint64_t checksum : checksums) {
      runners.push_back(std::make_unique<PositionRunner>(gate_, checksum));
    }
    auto transport = std::make_unique<CopyingTransport>(std::move(runners));
    transport_ = transport.get();
    engine_ =
        std::make_unique<Engine>(config, EngineLimits{4096, 1 << 20, 256}, std::move(transport),
                                 &sink_, /*graph_sizes=*/std::vector<int32_t>());
  }
  void Create(const SessionName& name, double idle_seconds = 3600) {
    const auto created =
        CreateSession(*engine_, name, {.idle_offload_after_seconds = idle_seconds});
    ASSERT_TRUE(created.ok()) << created.status();
  }
  // One whole turn; its end.
  FinishEvent Say(RequestId id, const SessionName& name, int text, int max_tokens) {
    Submit(id, name, text, max_tokens);
    sink_.AwaitEnds(++ends_);
    return sink_.stream(id).ends.at(0);
  }
  void Submit(RequestId id, const SessionName& name, int text, int max_tokens) {
    auto request = MakeTurn(name, std::vector<int32_t>(text, 1));
    request->id = id;
    request->sampling.max_tokens = max_tokens;
    request->arrival_ns = SteadyNowNs();
    ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
  }

  std::counting_semaphore<>* gate_ = nullptr;
  double copy_timeout_ = 10;
  RecordingSink sink_;
  std::unique_ptr<Engine> engine_;
  CopyingTransport* transport_ = nullptr;
  size_t ends_ = 0;
};

TEST_F(EngineSessionsTest, OperationsOfAThreadRunInOrderWhileRequestsRun) {
  Start();
  constexpr int kThreads = 4, kAsks = 500;
  std::vector<std::thread> threads;
  std::vector<std::vector<int>> seen(kThreads);  // written on the scheduler thread alone
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kAsks; ++i) {
        if (i % 10 == 0) {
          const RequestId id = 1 + t * kAsks + i;
          ASSERT_TRUE(engine_->Submit(MakeRequest(id, 20, 10)).ok());
          if (i % 20 == 0) engine_->Cancel(id, FinishReason::kCancelled);
        }
        engine_->Run({.name = "s", .action = SessionOperation::Get()},
                     [&seen, t, i](const SessionAnswer&) { seen[t].push_back(i); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  sink_.AwaitEnds(kThreads * kAsks / 10);
  EXPECT_FALSE(GetSession(*engine_, "s").ok());
  for (const std::vector<int>& order : seen) {
    ASSERT_EQ(order.size(), size_t{kAsks});
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

TEST_F(EngineSessionsTest, OperationsRunWhileDrainingAndAfterAFaultForGood) {
  Start({1, 2});
  Create("s");
  engine_->StartDrain();
  EXPECT_TRUE(GetSession(*engine_, "s").ok());
  engine_.reset();

  Start({1, 2});
  Create("s");
  Submit(1, "s", 10, 5);
  sink_.AwaitEnds(1);
  EXPECT_EQ(sink_.stream(1).ends.at(0).reason, FinishReason::kEngineFault);
  const absl::StatusOr<SessionInfo> info = GetSession(*engine_, "s");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->position, 0) << "a turn that failed left something";
  EXPECT_NE(info->state, SessionState::kActive);
}

// When the engine ends, it destroys a waiting caller's completion. So the caller learns of the end.
TEST_F(EngineSessionsTest, EveryOperationRunsOrIsDroppedWhenTheEngineEnds) {
  Start();
  std::atomic<int> alive{0}, ran{0};
  struct Counted {
    explicit Counted(std::atomic<int>* count) : count_(count) { ++*count_; }
    ~Counted() { --*count_; }
    std::atomic<int>* count_;
  };
  for (int i = 0; i < 1000; ++i) {
    engine_->Run({.name = "s", .action = SessionOperation::Get()},
                 [&ran, held = std::make_shared<Counted>(&alive)](const SessionAnswer&) { ++ran; });
  }
  engine_.reset();
  EXPECT_EQ(alive.load(), 0);
  EXPECT_LE(ran.load(), 1000);
}

TEST_F(EngineSessionsTest, ATurnContinuesWhereTheLastOneEnded) {
  Start();
  Create("s");
  EXPECT_EQ(Say(1, "s", 20, 5).position, 25);
  const FinishEvent second = Say(2, "s", 10, 5);
  EXPECT_EQ(second.position, 40);
  EXPECT_THAT(sink_.stream(2).tokens, ElementsAre(35, 36, 37, 38, 39));
  // All but the last token, whose KV was never computed.
  EXPECT_EQ(second.residency.device_tokens, 24);
  EXPECT_EQ(second.usage.cached_tokens, 24);
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.prompt_tokens, 20u + 11u);
  EXPECT_EQ(stats.cache.sessions, 1);
  EXPECT_EQ(stats.cache.session_tokens, 40);
}

TEST_F(EngineSessionsTest, AStoppedTurnKeepsTheTokensItsReaderReceived) {
  std::counting_semaphore<> gate(6);
  gate_ = &gate;
  Start();
  Create("s");
  Submit(1, "s", 20, 100);
  sink_.AwaitTokens(1, 4);
  engine_->Cancel(1, FinishReason::kStopText, 2);
  gate.release(100000);
  sink_.AwaitEnds(1);
  EXPECT_EQ(sink_.stream(1).ends.at(0).position, 22);
  EXPECT_EQ(GetSession(*engine_, "s")->position, 22);
}

TEST_F(EngineSessionsTest, AnIdleSessionIsStoredWithoutLiveRequests) {
  Start();
  Create("s", 0);
  Say(1, "s", 40, 5);
  const CopyJob job = transport_->AwaitJob(0);
  EXPECT_EQ(job.direction, CopyDirection::kStore);
  EXPECT_EQ(job.copies.size(), 3u);  // two whole blocks and the tail
  while (!engine_->Idle()) std::this_thread::yield();
  EXPECT_EQ(GetSession(*engine_, "s")->state, SessionState::kOffloading);
  transport_->Ack(CopyingTransport::GoodAck(job));
  const SessionInfo info =
      AwaitSession(*engine_, "s", [](const SessionInfo& now) { return now.tiers.host_tokens > 0; });
  EXPECT_EQ(info.tiers.host_tokens, 44);
  while (engine_->Stats().tiering.stored_blocks != 3) std::this_thread::yield();
  EXPECT_EQ(engine_->Stats().cache.host_pages_used, 3);
}

TEST_F(EngineSessionsTest, AFailedCopyHarmsNoRequest) {
  Start();
  Create("s", 0);
  Say(1, "s", 40, 5);
  const CopyJob job = transport_->AwaitJob(0);
  transport_->AckAtOnce();
  transport_->Ack({.job = job.job, .status = CopyStatus::kFailed});
  while (engine_->Stats().tiering.failed_jobs == 0) std::this_thread::yield();
  EXPECT_EQ(Say(2, "s", 10, 5).residency.device_tokens, 44);
}

// Worker threads cannot be replaced. So a copy that never ends is counted, and logged once.
TEST_F(EngineSessionsTest, ACopyThatNeverEndsIsLoggedOnceAndHarmsNoRequest) {
  ::testing::internal::CaptureStderr();
  copy_timeout_ = 0.001;
  Start();
  Create("s", 0);
  Say(1, "s", 40, 5);
  const CopyJob job = transport_->AwaitJob(0);
  while (engine_->Stats().tiering.late_jobs == 0) std::this_thread::yield();
  EXPECT_EQ(Say(2, "s", 10, 5).residency.device_tokens, 44);  // the tail, which it reads, too
  transport_->Ack(CopyingTransport::GoodAck(job));
  engine_.reset();
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t first = log.find(" late=1 ");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(" late=1 ", first + 1), std::string::npos) << log;
}

TEST_F(EngineSessionsTest, ATransportThatCopiesNothingStopsNothing) {
  Start();
  transport_->Refuse();
  Create("s", 0);
  Say(1, "s", 40, 5);
  while (engine_->Stats().tiering.failed_jobs == 0) std::this_thread::yield();
  EXPECT_EQ(Say(2, "s", 10, 5).position, 60);
}

TEST_F(EngineSessionsTest, LeasesEndWithoutAnyRequest) {
  Start();
  const auto created = CreateSession(*engine_, "s", {.ttl_seconds = 0.001});
  ASSERT_TRUE(created.ok()) << created.status();
  while (GetSession(*engine_, "s").ok()) std::this_thread::yield();
  EXPECT_EQ(GetSession(*engine_, "s").status().code(), absl::StatusCode::kNotFound);
}

// Many threads use sessions on a small pool. Idle sessions are stored at once, a third of the
// copies fails, and requests are cancelled. Each request ends once, and the engine ends.
TEST_F(EngineSessionsTest, ManyThreadsWithSessionsAndNoDeadlock) {
  Start();
  transport_->AckAtOnce();
  transport_->FailSome();
  constexpr int kThreads = 8, kTurns = 40;
  std::vector<std::thread> threads;
  std::atomic<size_t> submitted{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      const SessionName name = "s" + std::to_string(t);
      Create(name, 0);
      int32_t position = 0;
      for (int i = 0; i < kTurns; ++i) {
        if (position > 150) {
          const auto cut = ChangeSession(*engine_, name, SessionOperation::Truncate{position / 4});
          ASSERT_TRUE(cut.ok()) << cut.status();
        }
        const RequestId id = 1 + t * kTurns + i;
        Submit(id, name, 1 + static_cast<int>(random() % 30), 1 + static_cast<int>(random() % 20));
        ++submitted;
        if (random() % 4 == 0) engine_->Cancel(id, FinishReason::kCancelled);
        position = AwaitSession(*engine_, name, [](const SessionInfo& now) {
                     return now.state != SessionState::kActive;
                   }).position;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  sink_.AwaitEnds(submitted.load());
  for (RequestId id = 1; id <= kThreads * kTurns; ++id) {
    EXPECT_EQ(sink_.stream(id).ends.size(), 1u) << id;
  }
  engine_.reset();
}

}  // namespace
}  // namespace quire
