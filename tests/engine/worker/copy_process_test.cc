// Worker processes that die, stop or send a false ack in the middle of a copy: the host's pages
// outlive them, and no worker writes there after Recover.
#include <signal.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "engine/engine.h"
#include "engine/worker/process/restarting_transport.h"
#include "engine/worker/process/supervisor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/engine_fakes.h"
#include "tests/engine/session_client.h"
#include "tests/engine/worker/copy_pool.h"
#include "tests/engine/worker/living_workers.h"

namespace quire {
namespace {

using testing::CopyPool;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Workers;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr CopyDirection kStore = CopyDirection::kStore;
constexpr CopyDirection kLoad = CopyDirection::kLoad;

constexpr KvLayout kLayout{.num_layers = 2, .num_kv_heads = 2, .head_dim = 8, .block_size = 16};
constexpr int32_t kNumBlocks = 9, kNumPages = 20;

// Worker processes of a "device" of scripted_worker, over an arena; null if they do not start.
std::unique_ptr<Supervisor> StartWorkers(const std::string& device, double timeout_seconds,
                                         const std::shared_ptr<HostArena>& arena) {
  WorkerOrder order{.device = device, .arena = arena};
  order.spec.model_dir = QUIRE_SOURCE_DIR "/models/demo";
  order.spec.kv_layout = kLayout;
  order.spec.num_blocks = kNumBlocks;
  order.spec.num_pages = kNumPages;
  order.spec.worker = {.max_num_seqs = 8,
                       .max_num_batched_tokens = 64,
                       .max_model_len = 1024,
                       .vocab_size = 2048,
                       .steps_in_flight = 2};
  const SupervisorOptions options{
      .program = QUIRE_BINARY_DIR "/tests/engine/worker/scripted_worker",
      .step_timeout_seconds = timeout_seconds,
      .first_backoff_seconds = 0.001};
  auto supervisor = std::make_unique<Supervisor>(options, std::vector{order});
  if (!supervisor->AwaitFacts().ok()) return nullptr;
  if (!arena->Allocate(order.spec.arena_shape()).ok()) return nullptr;
  order.start = true;
  supervisor->Load({order});
  return supervisor->AwaitReady().ok() ? std::move(supervisor) : nullptr;
}

class CopyProcesses : public ::testing::Test {
 protected:
  void Start(const std::string& device, double timeout_seconds = 30) {
    auto supervisor = StartWorkers(device, timeout_seconds, arena_);
    ASSERT_NE(supervisor, nullptr);
    transport_ = std::make_unique<RestartingTransport>(std::move(supervisor));
    transport_->SetWake(&wake_);
    for (PageId page = 0; page < 10; ++page) CopyPool::Fill(arena_->page(page), page + 1);
  }
  void Submit(CopyDirection direction, int32_t block, PageId page) {
    ASSERT_TRUE(transport_->Submit({++job_, direction, {{block, page}}}));
  }
  // Whether it came.
  bool Await() {
    CopyAck ack;
    while (!transport_->PollCopy(ack)) {
      if (!transport_->fault().empty()) return false;
      wake_.Wait(kNever);
    }
    EXPECT_EQ(ack.status, CopyStatus::kOk);
    EXPECT_EQ(ack.job, job_);
    return true;
  }
  // The page's bytes travel through a block to another page.
  void Move(PageId from, int32_t block, PageId to) {
    Submit(kLoad, block, from);
    EXPECT_TRUE(Await());
    Submit(kStore, block, to);
    EXPECT_TRUE(Await());
    EXPECT_TRUE(Holds(to, from + 1));
  }
  bool Holds(PageId page, uint32_t seed) { return CopyPool::Holds(arena_->page(page), seed); }
  void RecoverAndWait() {
    ASSERT_TRUE(transport_->Recover());
    CopyAck ack;
    EXPECT_FALSE(transport_->PollCopy(ack));
    while (transport_->recovering()) {
      EXPECT_FALSE(transport_->Submit({++job_, kStore, {{1, 1}}}));
      wake_.Wait(kNever);
    }
    EXPECT_EQ(transport_->fault(), "");
    EXPECT_FALSE(transport_->PollCopy(ack));
  }
  // Begins a store that its worker does not survive, then goes on with the next.
  void LoseTheSecondStore(const std::string& why) {
    Move(3, 1, 12);
    Submit(kStore, 1, 13);
    EXPECT_FALSE(Await());
    EXPECT_THAT(transport_->fault(), HasSubstr(why));
    RecoverAndWait();
    for (PageId page = 0; page < 10; ++page) EXPECT_TRUE(Holds(page, page + 1)) << page;
    EXPECT_TRUE(Holds(12, 4)) << "what was acked is there";
    Move(5, 2, 13);
  }

  const std::shared_ptr<HostArena> arena_ = std::make_shared<HostArena>(*HostArena::Create());
  WakeEvent wake_;
  std::unique_ptr<Transport> transport_;
  uint64_t job_ = 0;
};

TEST_F(CopyProcesses, MoveBytes) {
  Start("copies");
  for (PageId page = 0; page < 8; ++page) Move(page, 1 + page, 10 + page);
}

TEST_F(CopyProcesses, AWorkerThatDiesInMidCopyLosesNoPage) {
  Start("dies-in-store-2");
  LoseTheSecondStore("killed by signal 9");
}

TEST_F(CopyProcesses, AWorkerThatHangsInACopyIsReplaced) {
  Start("hangs-in-store-2", /*timeout_seconds=*/2);
  LoseTheSecondStore("has finished no store for");
}

TEST_F(CopyProcesses, AWorkerWithAFalseAckIsReplaced) {
  Start("lies-about-store-2");
  LoseTheSecondStore("answered with 99 good copies");
}

TEST_F(CopyProcesses, NoWorkerWritesToThePagesAfterRecover) {
  Start("lies-about-store-2");
  Move(3, 1, 12);
  Submit(kStore, 1, 13);
  EXPECT_FALSE(Await());
  while (Holds(13, 4)) std::this_thread::yield();  // until it is being scribbled on
  const pid_t scribbler = Workers().front();
  ASSERT_TRUE(transport_->Recover());
  EXPECT_NE(kill(scribbler, 0), 0) << "it is gone, and was waited for";
  const std::span<const std::byte> page = arena_->page(13);
  const std::vector<std::byte> left(page.begin(), page.end());
  while (transport_->recovering()) {
    ASSERT_TRUE(std::equal(page.begin(), page.end(), left.begin()));
  }
}

// A turn that waits for KV from the host has it computed when the copy stands still, and not
// copied once more: the next worker could stand still just so.
TEST(EngineOverCopyProcesses, ATurnWhoseRestoreHangsIsRecomputed) {
  const auto arena = std::make_shared<HostArena>(*HostArena::Create());
  auto supervisor = StartWorkers("hangs-in-load", /*timeout_seconds=*/2, arena);
  ASSERT_NE(supervisor, nullptr);
  const Supervisor& workers = *supervisor;
  SchedulerConfig config{.num_blocks = kNumBlocks,
                         .block_size = kLayout.block_size,
                         .max_model_len = 128,
                         .max_num_seqs = 8,
                         .max_num_batched_tokens = 64,
                         .max_num_queued_reqs = 64};
  config.num_pages = kNumPages;
  config.sessions = {.max_sessions = 10,
                     .max_sessions_per_tenant = 10,
                     .max_session_tokens = 10000,
                     .max_model_len = 128,
                     .default_ttl_seconds = 3600,
                     .max_ttl_seconds = 3600};
  config.tiering.block_bytes = kLayout.block_bytes();
  RecordingSink sink;
  Engine engine(config, EngineLimits{64, 1 << 20, 128},
                std::make_unique<RestartingTransport>(std::move(supervisor)), &sink,
                /*graph_sizes=*/{});
  ASSERT_TRUE(CreateSession(engine, "s", {.idle_offload_after_seconds = 3600}).ok());
  const auto say = [&](RequestId id, int text) {
    auto request = MakeTurn("s", std::vector<int32_t>(text, 1));
    request->id = id;
    request->sampling.max_tokens = 5;
    ASSERT_TRUE(engine.Submit(std::move(request)).ok());
    sink.AwaitEnds(id);
  };
  say(1, 40);
  ASSERT_TRUE(ChangeSession(engine, "s", SessionOperation::Offload()).ok());
  AwaitSession(engine, "s", [](const SessionInfo& now) {
    return now.tiers.host_tokens == 44 && now.tiers.device_tokens == 0;
  });
  say(2, 5);
  EXPECT_EQ(sink.stream(2).ends.at(0).reason, FinishReason::kMaxTokens);
  EXPECT_THAT(sink.stream(2).tokens, ElementsAre(50, 51, 52, 53, 54));
  EXPECT_EQ(sink.stream(2).ends.at(0).residency.recomputed_tokens, 44);
  EXPECT_EQ(workers.restarts(), 1u);
  EXPECT_EQ(engine.Stats().recoveries, 1u);
}

}  // namespace
}  // namespace quire
