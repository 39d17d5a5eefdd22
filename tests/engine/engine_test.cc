// Engine: every accepted request gets its tokens in order and exactly one end, under every race.
#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "engine/kv_event_log.h"
#include "engine/worker/in_process_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/engine_fakes.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

struct Fixture {
  explicit Fixture(std::counting_semaphore<>* gate = nullptr, EngineLimits limits = {64, 4096, 256},
                   std::vector<uint64_t> checksums = {0}) {
    const SchedulerConfig config{.num_blocks = 65,
                                 .block_size = 16,
                                 .max_model_len = 256,
                                 .max_num_seqs = 8,
                                 .max_num_batched_tokens = 64,
                                 .max_num_queued_reqs = 4096};
    std::vector<std::unique_ptr<StepRunner>> runners;
    for (uint64_t checksum : checksums) {
      runners.push_back(std::make_unique<PositionRunner>(gate, checksum));
    }
    engine = std::make_unique<Engine>(config, limits,
                                      std::make_unique<InProcessTransport>(std::move(runners), 2),
                                      &sink, std::vector<int32_t>{2, 4});
  }
  RecordingSink sink;
  std::unique_ptr<Engine> engine;
};

TEST(EngineTest, StreamsTokensInOrderThenEndsOnce) {
  Fixture f;
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 100, 5)).ok());
  f.sink.AwaitEnds(1);
  const auto stream = f.sink.stream(1);
  EXPECT_THAT(stream.tokens, ::testing::ElementsAre(100, 101, 102, 103, 104));
  ASSERT_EQ(stream.ends.size(), 1u);
  EXPECT_EQ(stream.ends[0].reason, FinishReason::kMaxTokens);
  EXPECT_EQ(stream.ends[0].usage.prompt_tokens, 100);
  EXPECT_EQ(stream.ends[0].usage.completion_tokens, 5);
  const RequestTimings& t = stream.ends[0].timings;
  EXPECT_LE(t.arrival_ns, t.admitted_ns);
  EXPECT_LT(t.admitted_ns, t.first_token_ns);
  EXPECT_LE(t.first_token_ns, t.last_token_ns);
}

TEST(EngineTest, CountsTheStepsOfEachGraphAndTheirPadding) {
  Fixture f;
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 10, 6)).ok());
  f.sink.AwaitEnds(1);
  // The prompt is no graph's; the five tokens after its own are one row each in a graph of two.
  const std::vector<GraphUse> graphs = f.engine->Stats().graphs;
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs[0].size, 2);
  EXPECT_EQ(graphs[0].replays, 5u);
  EXPECT_EQ(graphs[0].padded_rows, 5u);
  EXPECT_EQ(graphs[1].size, 4);
  EXPECT_EQ(graphs[1].replays, 0u);
}

// The blocks of the next batch, which follows soon.
KvEventBatch AwaitBatch(KvSubscription& subscription, std::counting_semaphore<>& ready) {
  for (;;) {
    const auto batch = subscription.Next();
    if (!batch.ok() || *batch != nullptr) return **batch;
    ready.acquire();
  }
}

TEST(EngineTest, TellsWhichBlocksHaveKvAndDropsThemInAFlush) {
  Fixture f;
  std::counting_semaphore<> ready(0);
  auto subscription = f.engine->kv_events().Subscribe(0, {}, [&] { ready.release(); });
  ASSERT_TRUE(subscription.ok());
  EXPECT_TRUE(AwaitBatch(**subscription, ready).snapshot.has_value());
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 40, 1)).ok());
  const KvEventBatch stored = AwaitBatch(**subscription, ready);
  ASSERT_EQ(stored.events.size(), 1u);
  EXPECT_EQ(stored.events[0].kind, KvEvent::Kind::kStored);
  EXPECT_EQ(stored.events[0].blocks.size(), 2u) << "40 tokens fill two blocks of 16";
  EXPECT_EQ(stored.block_size, 16);
  f.sink.AwaitEnds(1);
  std::binary_semaphore flushed(0);
  FlushedCache answer;
  f.engine->FlushCache({}, [&](const FlushedCache& given) {
    answer = given;
    flushed.release();
  });
  flushed.acquire();
  EXPECT_EQ(answer.blocks, 2);
  EXPECT_EQ(answer.kept_blocks, 0);
  const KvEventBatch cleared = AwaitBatch(**subscription, ready);
  ASSERT_EQ(cleared.events.size(), 1u);
  EXPECT_EQ(cleared.events[0].kind, KvEvent::Kind::kCleared);
  EXPECT_EQ(cleared.sequence, stored.sequence + 1);
}

TEST(EngineTest, RefusesRequestsThatCanNeverRun) {
  Fixture f;
  EXPECT_EQ(f.engine->Submit(MakeRequest(1, 256, 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(f.engine->Idle());
}

TEST(EngineTest, RefusesPromptsWithTokensOutsideTheVocabulary) {
  Fixture f(nullptr, {64, 4096, 256, /*vocab_size=*/100});
  auto request = MakeRequest(1, 5, 5);
  request->prompt[3] = 100;
  const absl::Status status = f.engine->Submit(std::move(request));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("token id 100 of the prompt"), absl::string_view::npos);
  request = MakeRequest(2, 5, 5);
  request->prompt[3] = 99;
  EXPECT_TRUE(f.engine->Submit(std::move(request)).ok());
}

TEST(EngineTest, RefusesBeyondTheQueueBoundsAndRecovers) {
  std::counting_semaphore<> gate(0);
  Fixture f(&gate, {.max_num_queued_reqs = 4, .max_num_queued_tokens = 4096, .max_model_len = 256});
  int accepted = 0;
  absl::Status refused;
  for (RequestId id = 1; id <= 64 && refused.ok(); ++id) {
    refused = f.engine->Submit(MakeRequest(id, 4, 2));
    accepted += refused.ok();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("queue is full"));
  gate.release(100000);
  f.sink.AwaitEnds(accepted);
  EXPECT_TRUE(f.engine->Submit(MakeRequest(1000, 4, 2)).ok());
  f.sink.AwaitEnds(accepted + 1);
}

TEST(EngineTest, RefusesBeyondTheQueuedTokenBound) {
  std::counting_semaphore<> gate(0);
  Fixture f(&gate, {.max_num_queued_reqs = 64, .max_num_queued_tokens = 100, .max_model_len = 256});
  // Eight requests take every row; the ninth stays in the queue after the eight are admitted.
  for (RequestId id = 1; id <= 8; ++id) ASSERT_TRUE(f.engine->Submit(MakeRequest(id, 4, 2)).ok());
  ASSERT_TRUE(f.engine->Submit(MakeRequest(9, 60, 2)).ok());
  EXPECT_EQ(f.engine->Submit(MakeRequest(10, 60, 2)).code(), absl::StatusCode::kUnavailable);
  gate.release(100000);
  f.sink.AwaitEnds(9);
}

TEST(EngineTest, LimitsOfTenantsChangeWhileItRuns) {
  std::counting_semaphore<> gate(0);
  Fixture f(&gate);
  const auto submit = [&](RequestId id, TenantId tenant) {
    auto request = MakeRequest(id, 4, 2);
    request->tenant = tenant;
    return f.engine->Submit(std::move(request));
  };
  EXPECT_EQ(f.engine->SetTenants({.defaults = {.weight = 0}}).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(
      f.engine
          ->SetTenants({.tenants = {{7, {.max_running_requests = 1, .max_queued_requests = 2}}}})
          .ok());
  ASSERT_TRUE(submit(1, 7).ok());
  while (f.engine->Stats().load.running != 1) std::this_thread::yield();
  ASSERT_TRUE(submit(2, 7).ok());
  ASSERT_TRUE(submit(3, 7).ok());
  EXPECT_EQ(submit(4, 7).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(submit(5, 8).ok());
  ASSERT_TRUE(f.engine->SetTenants({}).ok());
  EXPECT_TRUE(submit(6, 7).ok());
  gate.release(100000);
  f.sink.AwaitEnds(5);
  while (f.engine->Stats().generated_tokens < 10) std::this_thread::yield();
  const std::vector<TenantStats> figures = f.engine->Tenants();
  ASSERT_EQ(figures.size(), 3u);  // tenant 0 comes first
  EXPECT_EQ(figures[1].tenant, 7u);
  EXPECT_EQ(figures[1].generated_tokens, 8u);
  EXPECT_EQ(figures[1].refused[size_t(TenantLimit::kQueuedRequests)], 1u);
  EXPECT_EQ(figures[2].generated_tokens, 2u);
}

TEST(EngineTest, AdmittedRequestsLeaveTheQueueBeforeTheirFirstStepEnds) {
  std::counting_semaphore<> gate(0);
  Fixture f(&gate, {.max_num_queued_reqs = 2, .max_num_queued_tokens = 4096, .max_model_len = 256});
  // One step each, so that the first request does not take both steps that may be in flight.
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 4, 1)).ok());
  ASSERT_TRUE(f.engine->Submit(MakeRequest(2, 4, 1)).ok());
  // The first step is stuck at the gate: only admission can have made room.
  while (f.engine->Stats().load.waiting != 0) std::this_thread::yield();
  EXPECT_TRUE(f.engine->Submit(MakeRequest(3, 4, 2)).ok());
  gate.release(100000);
  f.sink.AwaitEnds(3);
}

// Submits requests that no step serves while another thread reads how many there are.
void SubmitAndCount(RequestId requests) {
  std::counting_semaphore<> gate(0);
  Fixture f(&gate,
            {.max_num_queued_reqs = 4096, .max_num_queued_tokens = 1 << 20, .max_model_len = 256});
  std::atomic<RequestId> submitting{0}, submitted{0};
  std::thread reader([&] {
    for (RequestId least = 0; least < requests && !testing::Test::HasFailure();) {
      least = submitted.load();
      const SchedulerLoad load = f.engine->Stats().load;
      const auto found = static_cast<RequestId>(load.waiting + load.running);
      EXPECT_GE(found, least);
      EXPECT_LE(found, submitting.load());
    }
  });
  for (RequestId id = 1; id <= requests; ++id) {
    submitting.store(id);
    EXPECT_TRUE(f.engine->Submit(MakeRequest(id, 4, 1)).ok());
    submitted.store(id);
  }
  reader.join();
  gate.release(100000);
  f.sink.AwaitEnds(requests);
}

// From the inbox to the scheduler's queue: a reader finds them in one of the two, not in neither.
TEST(EngineTest, AcceptedRequestsAreCountedAtAnyMoment) {
  for (int round = 0; round < 5; ++round) SubmitAndCount(3000);
}

TEST(EngineTest, ARequestThatArrivesTooLateLeavesNoTraceInTheQueue) {
  Fixture f(nullptr,
            {.max_num_queued_reqs = 1, .max_num_queued_tokens = 4096, .max_model_len = 256});
  for (RequestId id = 1; id <= 3; ++id) {
    auto late = MakeRequest(id, 4, 2);
    late->deadline_ns = SteadyNowNs() - 1;
    ASSERT_TRUE(f.engine->Submit(std::move(late)).ok()) << id;
    f.sink.AwaitEnds(id);
    while (f.engine->Stats().load.waiting != 0) std::this_thread::yield();
  }
}

TEST(EngineTest, CancelEndsARunningRequestAndItsBlocksReturn) {
  Fixture f;
  const int32_t free_before = f.engine->Stats().load.free_blocks;
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 10, 200)).ok());
  f.sink.AwaitTokens(1, 3);
  f.engine->Cancel(1, FinishReason::kCancelled);
  f.engine->Cancel(1, FinishReason::kCancelled);
  f.engine->Cancel(77, FinishReason::kCancelled);
  f.sink.AwaitEnds(1);
  // A later request retires a step, so everything of the first has been released by then.
  ASSERT_TRUE(f.engine->Submit(MakeRequest(2, 4, 2)).ok());
  f.sink.AwaitEnds(2);
  EXPECT_THAT(f.sink.stream(1).ends.size(), 1u);
  while (f.engine->Stats().load.free_blocks != free_before) std::this_thread::yield();
  while (!f.engine->Idle()) std::this_thread::yield();
}

TEST(EngineTest, APausedRequestWaitsAndTheEngineStaysHealthy) {
  std::counting_semaphore<> gate(5);
  Fixture f(&gate);
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 10, 200)).ok());
  f.sink.AwaitTokens(1, 3);
  f.engine->SetPaused(1, true);
  while (f.engine->Stats().load.paused != 1) std::this_thread::yield();
  gate.release(100000);
  EngineStats stats = f.engine->Stats();
  EXPECT_FALSE(stats.work_waiting);
  EXPECT_FALSE(f.engine->Idle());
  // Other requests continue.
  ASSERT_TRUE(f.engine->Submit(MakeRequest(2, 4, 5)).ok());
  f.sink.AwaitEnds(1);
  EXPECT_EQ(f.sink.stream(2).tokens.size(), 5u);
  const int64_t resumed_ns = SteadyNowNs();
  f.engine->SetPaused(1, false);
  f.sink.AwaitEnds(2);
  EXPECT_EQ(f.sink.stream(1).tokens.size(), 200u);
  EXPECT_GE(f.engine->Stats().work_since_ns, resumed_ns);
}

TEST(EngineTest, DestructionEndsPausedRequests) {
  Fixture f;
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 10, 200)).ok());
  f.engine->SetPaused(1, true);
  f.engine.reset();
  EXPECT_EQ(f.sink.stream(1).ends.size(), 1u);
}

TEST(EngineTest, DeadlineEndsARequestThatOnlyWaits) {
  std::counting_semaphore<> gate(0);
  Fixture f(&gate);
  for (RequestId id = 1; id <= 8; ++id) ASSERT_TRUE(f.engine->Submit(MakeRequest(id, 4, 2)).ok());
  auto late = MakeRequest(9, 4, 2);
  late->deadline_ns = SteadyNowNs() + 10'000'000;
  ASSERT_TRUE(f.engine->Submit(std::move(late)).ok());
  f.sink.AwaitEnds(1);
  EXPECT_EQ(f.sink.stream(9).ends.at(0).reason, FinishReason::kDeadline);
  gate.release(100000);
  f.sink.AwaitEnds(9);
}

TEST(EngineTest, DrainRefusesNewWorkAndFinishesOld) {
  std::counting_semaphore<> gate(0);
  Fixture f(&gate);
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 10, 20)).ok());
  f.engine->StartDrain();
  EXPECT_EQ(f.engine->Submit(MakeRequest(2, 10, 20)).code(), absl::StatusCode::kUnavailable);
  gate.release(100000);
  f.sink.AwaitEnds(1);
  EXPECT_EQ(f.sink.stream(1).ends.at(0).reason, FinishReason::kMaxTokens);
  EXPECT_EQ(f.sink.stream(1).tokens.size(), 20u);
}

TEST(EngineTest, DestructionEndsLiveRequestsWithDraining) {
  Fixture f;
  for (RequestId id = 1; id <= 40; ++id) {
    ASSERT_TRUE(f.engine->Submit(MakeRequest(id, 30, 200)).ok());
  }
  f.sink.AwaitTokens(1, 1);
  f.engine.reset();
  for (RequestId id = 1; id <= 40; ++id) EXPECT_EQ(f.sink.stream(id).ends.size(), 1u);
}

TEST(EngineTest, RanksThatDisagreeEndEverythingWithAFault) {
  Fixture f(nullptr, {64, 4096, 256}, {1, 2});
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 10, 20)).ok());
  f.sink.AwaitEnds(1);
  EXPECT_EQ(f.sink.stream(1).ends.at(0).reason, FinishReason::kEngineFault);
  EXPECT_TRUE(f.sink.stream(1).tokens.empty()) << "tokens nobody can vouch for";
  const EngineStats stats = f.engine->Stats();
  EXPECT_THAT(stats.fault, HasSubstr("step 1"));
  EXPECT_EQ(stats.load.free_blocks, stats.load.total_blocks);
  EXPECT_EQ(f.engine->Submit(MakeRequest(2, 10, 20)).code(), absl::StatusCode::kUnavailable);
}

TEST(EngineTest, CountsTheTokensOfSteps) {
  Fixture f;
  ASSERT_TRUE(f.engine->Submit(MakeRequest(1, 100, 5)).ok());  // chunks of 64 and 36, four decodes
  f.sink.AwaitEnds(1);
  const EngineStats stats = f.engine->Stats();
  EXPECT_EQ(stats.prompt_tokens, 100u);
  EXPECT_EQ(stats.generated_tokens, 5u);
  EXPECT_EQ(stats.last_step_tokens, 1);
  EXPECT_GE(stats.steps, 6u);
}

TEST(EngineTest, ManyThreadsSubmitAndCancelAndEachRequestEndsOnce) {
  constexpr int kThreads = 4;
  constexpr int kPerThread = 500;
  Fixture f(nullptr, {100000, 1 << 24, 256});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < kPerThread; ++i) {
        const RequestId id = 1 + t * kPerThread + i;
        ASSERT_TRUE(f.engine->Submit(MakeRequest(id, 1 + random() % 100, 1 + random() % 30)).ok());
        if (random() % 3 == 0)
          f.engine->Cancel(id - random() % std::min(i + 1, 20), FinishReason::kCancelled);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  f.sink.AwaitEnds(kThreads * kPerThread);
  for (RequestId id = 1; id <= kThreads * kPerThread; ++id) {
    const auto stream = f.sink.stream(id);
    ASSERT_EQ(stream.ends.size(), 1u) << id;
    EXPECT_EQ(stream.ends[0].usage.completion_tokens, static_cast<int32_t>(stream.tokens.size()));
    for (size_t i = 1; i < stream.tokens.size(); ++i) {
      ASSERT_EQ(stream.tokens[i], stream.tokens[i - 1] + 1) << id;
    }
  }
  const EngineStats stats = f.engine->Stats();
  EXPECT_EQ(stats.load.waiting, 0);
}

}  // namespace
}  // namespace quire
