// TenantGate: which requests a tenant's limits refuse, when they say to come back, and that coming
// back then succeeds; the part of a full queue; deadlines that cannot be met. The clock is the
// test's. Covers engine/rate_meter.h.
#include "engine/tenant_gate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr TenantId kOne = 1, kTwo = 2;

class GateTest : public testing::Test {
 protected:
  GateTest() : gate_(Config(), Limits()) {}

  static SchedulerConfig Config() {
    SchedulerConfig config;
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = 100;
    config.block_size = 16;
    return config;
  }
  static EngineLimits Limits() {
    return {.max_num_queued_reqs = 10, .max_num_queued_tokens = 1000};
  }
  void SetLimits(TenantId tenant, const TenantLimits& limits) {
    gate_.SetTable({.defaults = {}, .tenants = {{tenant, limits}}});
  }
  absl::Status Enter(TenantId tenant, int64_t tokens, int64_t deadline_ns = kNoDeadline) {
    Request request;
    request.tenant = tenant;
    request.deadline_ns = deadline_ns;
    return gate_.Enter(request, tokens, now_ns_, &predicted_ns_);
  }
  static double Retry(const absl::Status& status) {
    const auto seconds = status.GetPayload(kLimitRetrySeconds);
    return seconds.has_value() ? std::stod(std::string(*seconds)) : -1;
  }
  static std::string Limit(const absl::Status& status) {
    const auto name = status.GetPayload(kLimitName);
    return name.has_value() ? std::string(*name) : "";
  }
  void Publish(const TenantStats& stats) { gate_.Publish(load_, {&stats, 1}, now_ns_); }
  TenantStats FiguresOf(TenantId tenant) {
    for (const TenantStats& stats : gate_.Figures()) {
      if (stats.tenant == tenant) return stats;
    }
    return {};
  }

  TenantGate gate_;
  SchedulerLoad load_{.free_blocks = 1000, .total_blocks = 1000};
  int64_t now_ns_ = 1000 * kSecond;
  int64_t predicted_ns_ = 0;
};

TEST_F(GateTest, QueuedRequestsBeyondTheLimitAreRefused) {
  SetLimits(kOne, {.max_queued_requests = 2});
  EXPECT_TRUE(Enter(kOne, 5).ok());
  EXPECT_TRUE(Enter(kOne, 5).ok());
  const absl::Status third = Enter(kOne, 5);
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Limit(third), "max_queued_requests");
  EXPECT_EQ(*third.GetPayload(kLimitValue), "2");
  EXPECT_EQ(Retry(third), -1);  // no rate is known
  EXPECT_TRUE(Enter(kTwo, 5).ok());
  EXPECT_EQ(FiguresOf(kOne).refused[size_t(TenantLimit::kQueuedRequests)], 1u);
  EXPECT_EQ(FiguresOf(kOne).queued, 2);
  // The scheduler has taken and begun one of them.
  gate_.Take(kOne, 5);
  gate_.Take(kOne, 5);
  Publish({.tenant = kOne, .running = 1, .queued = 1, .queued_tokens = 5, .begun = 1});
  EXPECT_TRUE(Enter(kOne, 5).ok());
  EXPECT_FALSE(Enter(kOne, 5).ok());
}

// Ten requests a second begin: the tenth place is free in a tenth of a second.
TEST_F(GateTest, RetryFollowsTheMeasuredRate) {
  SetLimits(kOne, {.max_queued_requests = 3});
  for (uint64_t begun = 1; begun <= 400; ++begun) {
    now_ns_ += kSecond / 10;
    Publish({.tenant = kOne,
             .queued = 3,
             .queued_tokens = 30,
             .begun = begun,
             .begun_tokens = begun * 10});
  }
  EXPECT_NEAR(Retry(Enter(kOne, 5)), 0.1, 0.02);
  SetLimits(kOne, {.max_queued_tokens = 30});
  // 50 tokens are too many by 50, and 100 a second begin; 30 wait.
  EXPECT_NEAR(Retry(Enter(kOne, 50)), 0.3, 0.06);
}

TEST_F(GateTest, QueuedTokensBeyondTheLimitAreRefused) {
  SetLimits(kOne, {.max_queued_tokens = 100});
  EXPECT_TRUE(Enter(kOne, 60).ok());
  EXPECT_EQ(Limit(Enter(kOne, 41)), "max_queued_tokens");
  EXPECT_TRUE(Enter(kOne, 40).ok());
  SetLimits(kTwo, {.max_queued_tokens = 100});
  EXPECT_TRUE(Enter(kTwo, 500).ok());  // a longer prompt waits alone
  EXPECT_EQ(Limit(Enter(kTwo, 1)), "max_queued_tokens");
}

// The delay is exact: a little earlier is refused, and then it is accepted.
TEST_F(GateTest, BucketSaysExactlyWhenItHoldsEnough) {
  SetLimits(kOne, {.tokens_per_minute = 600});
  EXPECT_TRUE(Enter(kOne, 500).ok());
  const absl::Status refused = Enter(kOne, 300);
  EXPECT_EQ(Limit(refused), "tokens_per_minute");
  EXPECT_NEAR(Retry(refused), 20, 0.01);  // 200 tokens are missing, and 10 come each second
  const int64_t begin_ns = now_ns_;
  now_ns_ = begin_ns + static_cast<int64_t>((Retry(refused) - 0.1) * kSecond);
  EXPECT_NEAR(Retry(Enter(kOne, 300)), 0.1, 0.01);
  now_ns_ = begin_ns + static_cast<int64_t>(Retry(refused) * kSecond);
  EXPECT_TRUE(Enter(kOne, 300).ok());
  // Generated tokens count when they are published.
  now_ns_ += 3600 * kSecond;
  EXPECT_TRUE(Enter(kOne, 1).ok());
  Publish({.tenant = kOne, .generated_tokens = 1199});
  EXPECT_NEAR(Retry(Enter(kOne, 1)), 60.1, 0.01);
  EXPECT_EQ(FiguresOf(kOne).refused[size_t(TenantLimit::kTokensPerMinute)], 3u);
}

TEST_F(GateTest, PromptLongerThanAMinutesTokensNeedsAFullBucket) {
  SetLimits(kOne, {.tokens_per_minute = 60});
  EXPECT_TRUE(Enter(kOne, 120).ok());
  EXPECT_NEAR(Retry(Enter(kOne, 120)), 120, 0.01);
  now_ns_ += 121 * kSecond;
  EXPECT_TRUE(Enter(kOne, 120).ok());
}

TEST_F(GateTest, RefusedTurnGivesItsTokensBack) {
  SetLimits(kOne, {.tokens_per_minute = 600});
  EXPECT_TRUE(Enter(kOne, 600).ok());
  EXPECT_FALSE(Enter(kOne, 600).ok());
  gate_.Take(kOne, 600);
  gate_.Untake();
  Publish({.tenant = kOne});
  EXPECT_TRUE(Enter(kOne, 600).ok());
}

TEST_F(GateTest, ChangedLimitApliesAtOnceAndKeepsWhatWasUsed) {
  SetLimits(kOne, {.tokens_per_minute = 600});
  EXPECT_TRUE(Enter(kOne, 600).ok());
  SetLimits(kOne, {.tokens_per_minute = 900});
  EXPECT_TRUE(Enter(kOne, 300).ok());
  EXPECT_FALSE(Enter(kOne, 1).ok());
  SetLimits(kOne, {});
  EXPECT_TRUE(Enter(kOne, 1).ok());
}

TEST_F(GateTest, FullQueueRefusesATenantWithItsPart) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Enter(kOne, 5).ok());
  EXPECT_EQ(Enter(kOne, 5).code(), absl::StatusCode::kUnavailable);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Enter(kTwo, 5).ok()) << i;
  EXPECT_EQ(Enter(kTwo, 5).code(), absl::StatusCode::kUnavailable);
  // Many tenants together stay within twice the bound.
  int accepted = 15;
  for (TenantId tenant = 10; tenant < 200; ++tenant) accepted += Enter(tenant, 1).ok();
  EXPECT_LE(accepted, 20);
}

TEST_F(GateTest, NothingIsPredictedBeforeStepsWereMeasured) {
  EXPECT_TRUE(Enter(kOne, 50, now_ns_ + 1).ok());
  EXPECT_EQ(predicted_ns_, 0);
  EXPECT_FALSE(gate_.PredictTtftSeconds(kOne, 50, now_ns_).has_value());
}

// Steps take 10 ms and 1 ms a token; the queue of the tenant itself decides.
TEST_F(GateTest, DeadlineThatCannotBeMetIsRefused) {
  load_.step_cost = {.step = 0.01, .prompt_token = 0.001, .known = true};
  gate_.Publish(load_, {}, now_ns_);
  EXPECT_NEAR(*gate_.PredictTtftSeconds(kOne, 50, now_ns_), 0.07, 0.001);
  Publish({.tenant = kOne, .queued = 1, .queued_tokens = 400});
  // 450 tokens in 5 steps, behind the one in flight.
  EXPECT_NEAR(*gate_.PredictTtftSeconds(kOne, 50, now_ns_), 0.51, 0.005);
  EXPECT_TRUE(Enter(kOne, 50, now_ns_ + kSecond * 3 / 10).ok());  // within the margin
  EXPECT_NEAR(static_cast<double>(predicted_ns_), 0.51 * kSecond, 0.005 * kSecond);
  const absl::Status late = Enter(kOne, 50, now_ns_ + kSecond / 10);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NEAR(std::stod(std::string(*late.GetPayload(kPredictedTtftMs))), 560, 10);
  EXPECT_EQ(gate_.deadline_refusals(), 1u);
  // Another tenant shares by weight, and does not wait for the whole queue.
  EXPECT_NEAR(*gate_.PredictTtftSeconds(kTwo, 50, now_ns_), 0.02 + 0.1, 0.005);
}

// Beside two rows a step gives prompts 38 of its 40 tokens, so that 76 take two steps, not one.
TEST_F(GateTest, PredictsTheStepsThatPromptsGetBesideRows) {
  SchedulerConfig config = Config();
  config.mixed_step_tokens = 40;
  TenantGate gate(config, Limits());
  load_.step_cost = {.step = 0.01, .prompt_token = 0.001, .known = true};
  load_.running = 2;
  gate.Publish(load_, {}, now_ns_);
  EXPECT_NEAR(*gate.PredictTtftSeconds(kOne, 76, now_ns_), 0.03 + 0.076, 1e-6);
  EXPECT_NEAR(*gate.PredictTtftSeconds(kOne, 38, now_ns_), 0.02 + 0.038, 1e-6);
}

// All rows are taken by long requests: when one becomes free is not known, so no request is
// refused.
TEST_F(GateTest, NothingIsPredictedFromALongGapBetweenAdmissions) {
  load_.step_cost = {.step = 0.01, .known = true};
  load_.running = 4;
  Publish({.tenant = kOne, .running = 4, .begun = 4, .begun_tokens = 40});
  now_ns_ += 5 * kSecond;
  EXPECT_LT(*gate_.PredictTtftSeconds(kOne, 10, now_ns_), 10);
  now_ns_ += 60 * kSecond;
  EXPECT_FALSE(gate_.PredictTtftSeconds(kOne, 10, now_ns_).has_value());
  EXPECT_TRUE(Enter(kOne, 10, now_ns_ + kSecond).ok());
}

TEST_F(GateTest, EntriesOfTenantsThatWentAreDropped) {
  for (TenantId tenant = 1; tenant <= 20'000; ++tenant) {
    EXPECT_TRUE(Enter(tenant, 1).ok());
    gate_.Take(tenant, 1);
    Publish({.tenant = tenant});
  }
  EXPECT_LE(gate_.Figures().size(), TenantGate::kMaxEntries);
}

}  // namespace
}  // namespace quire
