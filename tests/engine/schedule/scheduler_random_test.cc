// Seeded random programs of adds, cancels, deadlines, late results and worker deaths over tiny
// pools: the scheduler, a shadow worker that recognises every stale or foreign block, and a slow
// reference scheduler that has to agree with every decision. A failure prints its seed; --seed=N
// runs that program alone,
// --steps=N runs programs until that many steps are done.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "tests/engine/schedule/random_steps.h"
#include "tests/engine/schedule/reference_scheduler.h"
#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

class Program {
 public:
  explicit Program(uint64_t seed)
      : random_(seed),
        config_(RandomConfig()),
        model_(RandomModel()),
        depth_(Between(1, 3)),
        arrivals_(guesses() ? Between(1, 6) : Between(4, 30)),
        long_prompt_one_in_(Between(1, 20)),
        long_output_one_in_(guesses() ? 1 : Between(1, 10)),
        num_tenants_(Between(1, 5)),
        sim_(config_, model_),
        reference_(config_, model_) {}

  void Run() {
    const int32_t num_operations = OneIn(10) ? Between(1000, 6000) : Between(50, 600);
    for (int32_t i = 0; i < num_operations && !testing::Test::HasFailure(); ++i) {
      RandomOperation();
    }
    Quiesce();
    if (!testing::Test::HasFailure()) CheckOutputs();
  }

  int64_t num_steps() const { return num_steps_; }
  const ReferenceScheduler& reference() const { return reference_; }
  const std::map<FinishReason, int64_t>& reasons() const { return reasons_; }

 private:
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % (high - low + 1));
  }
  bool OneIn(int32_t n) { return Between(1, n) == 1; }
  // Guesses need long outputs, and few rows beside them.
  bool guesses() const { return config_.step_guesses > 0; }

  SchedulerConfig RandomConfig() {
    SchedulerConfig config;
    config.block_size = std::array{1, 2, 3, 4, 8, 16}[Between(0, 5)];
    config.step_guesses = OneIn(2) ? Between(1, 24) : 0;
    config.max_model_len = config.step_guesses > 0 ? Between(20, 200) : Between(4, 96);
    const int32_t blocks_per_sequence = config.max_model_len / config.block_size + 1;
    config.num_blocks = 2 + Between(blocks_per_sequence / 2, blocks_per_sequence * 3);
    config.max_num_seqs = Between(1, config.step_guesses > 0 && OneIn(2) ? 2 : 10);
    config.max_num_batched_tokens = OneIn(3) ? Between(1, 8) : Between(8, 64);
    config.max_num_queued_reqs = 24;
    config.max_partial_prefills = Between(1, 4);
    config.growth_horizon = OneIn(2) ? 0 : Between(0, 32);
    config.prefix_cache = !OneIn(10);
    return config;
  }

  ShadowModel RandomModel() {
    ShadowModel model;
    model.vocab_size = 50;
    model.eos_token = 7;
    model.eos_probability = std::array{0.0, 0.03, guesses() ? 0.01 : 0.3}[Between(0, 2)];
    model.nan_probability = OneIn(4) ? 0.01 : 0.0;
    model.usual_probability = std::array{0.0, 0.8, 0.9, 0.95, 1.0}[Between(0, 4)];
    return model;
  }

  void RandomOperation() {
    sim_.now_ns += Between(0, 3);
    const int32_t dice = Between(0, 99);
    if (dice < arrivals_) {
      Add();
    } else if (dice < 32) {
      Cancel();
    } else if (dice < 34) {
      CompareEnds(reference_.ExpireDeadlines(sim_.now_ns), [&] { sim_.ExpireDeadlines(); });
    } else if (dice == 36 && OneIn(4)) {
      SetTenants();
    } else if (dice == 34 && OneIn(3)) {
      CompareEnds(reference_.KillWorker(), [&] { sim_.KillWorker(); });
    } else if (dice == 35 && OneIn(10)) {
      sim_.CancelAll(FinishReason::kDraining);
      std::vector<RequestId> order;
      for (const FinishEvent& event : sim_.last_finishes()) order.push_back(event.id);
      CompareEnds(reference_.CancelAll(FinishReason::kDraining, order), [] {});
    } else if (dice < 70) {
      if (sim_.steps_in_flight() < depth_) Schedule();
    } else if (sim_.steps_in_flight() > 0) {
      Retire();
    }
  }

  void Add() {
    if (sim_.load().waiting >= config_.max_num_queued_reqs) return;
    RequestSpec spec;
    spec.prompt_tokens = Between(1, OneIn(long_prompt_one_in_) ? config_.max_model_len : 10);
    spec.max_tokens = Between(1, OneIn(long_output_one_in_) ? config_.max_model_len : 10);
    if (OneIn(2)) {
      spec.prompt_tokens = Between(1, std::max(10, config_.max_model_len / 2));
      spec.prompt = SharedPrompt(spec.prompt_tokens);
    }
    spec.tenant = OneIn(4) ? Between(0, num_tenants_ - 1) : 0;
    spec.bypass_cache = OneIn(10);
    if (!sim_.scheduler().Fits(spec.prompt_tokens, spec.max_tokens)) return;
    spec.priority = OneIn(3) ? Between(-1, 1) : 0;
    // Mostly in order of arrival, sometimes late from another thread, sometimes equal.
    spec.arrival_ns = sim_.now_ns - (OneIn(4) ? Between(0, 20) : 0);
    if (OneIn(6)) spec.deadline_ns = sim_.now_ns + Between(0, 200);
    if (OneIn(4)) spec.min_tokens = Between(0, spec.max_tokens);
    if (OneIn(4)) spec.stop_token_ids = {Between(0, 49), Between(0, 49)};
    spec.stops_at_eos = !OneIn(5);
    if (!OneIn(4)) spec.max_guesses = Between(1, 12);
    reference_.Add(sim_.Add(spec), spec);
    ++num_requests_;
    CompareLoads();
  }

  // Sometimes all have the defaults, and sometimes the names change.
  void SetTenants() {
    TenantTable table;
    for (int32_t tenant = 0; tenant < num_tenants_; ++tenant) {
      TenantLimits limits;
      limits.weight = std::array{0.5, 1.0, 1.0, 4.0, 3.7}[Between(0, 4)];
      if (OneIn(3)) limits.max_running_requests = Between(1, 4);
      if (!OneIn(4)) table.tenants.emplace_back(tenant, limits);
    }
    reference_.SetTenants(table);
    sim_.SetTenants(table);
  }

  // Begins like one of two texts or like an earlier request with its output, then has own tokens.
  std::vector<int32_t> SharedPrompt(int32_t size) {
    const RequestId other = static_cast<RequestId>(Between(0, num_requests_));
    std::vector<int32_t> prompt = PromptOf(1000 + other % 2, {.prompt_tokens = size}, 50);
    if (other > 0 && OneIn(2)) {
      prompt = PromptOf(other, sim_.spec(other), model_.vocab_size);
      const std::vector<int32_t>& output = sim_.outcome(other).tokens;
      prompt.insert(prompt.end(), output.begin(), output.end());
    }
    const int32_t shared = OneIn(2) ? size : Between(0, size);
    prompt.resize(std::min<size_t>(prompt.size(), shared));
    while (static_cast<int32_t>(prompt.size()) < size) prompt.push_back(Between(0, 49));
    return prompt;
  }

  void Cancel() {
    if (num_requests_ == 0 || !OneIn(6)) return;
    // Often the id of a request that ended long ago, or of none.
    const RequestId id =
        static_cast<RequestId>(Between(std::max(1, num_requests_ - 15), num_requests_ + 1));
    const FinishReason reason = FinishReason::kCancelled;
    CompareEnds(reference_.Cancel(id, reason), [&] { sim_.Cancel(id, reason); });
  }

  bool Schedule() {
    const bool any = sim_.Schedule();
    EXPECT_EQ(sim_.last_plan(), reference_.Schedule(sim_.now_ns));
    EXPECT_EQ(any, !sim_.last_plan().empty());
    EXPECT_EQ(sim_.preempted(), reference_.preempted());
    CompareLoads();
    num_steps_ += any;
    return any;
  }

  void Retire() {
    sim_.Retire();
    CompareEnds(reference_.Retire(sim_.last_result().samples), [] {});
  }

  template <typename Call>
  void CompareEnds(std::vector<ReferenceScheduler::End> expected, Call call) {
    call();
    std::vector<ReferenceScheduler::End> ends;
    for (const FinishEvent& event : sim_.last_finishes()) {
      ends.push_back({event.id, event.reason, event.usage.cached_tokens});
      ++reasons_[event.reason];
    }
    const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
    std::sort(ends.begin(), ends.end(), by_id);
    std::sort(expected.begin(), expected.end(), by_id);
    EXPECT_EQ(ends, expected);
    CompareLoads();
  }

  void CompareLoads() {
    const SchedulerLoad load = sim_.load();
    const SchedulerLoad expected = reference_.Load();
    EXPECT_EQ(load.running, expected.running);
    EXPECT_EQ(load.waiting, expected.waiting);
    EXPECT_EQ(load.waiting_tokens, expected.waiting_tokens);
    EXPECT_EQ(load.free_blocks, expected.free_blocks);
    EXPECT_EQ(load.cached_blocks, expected.cached_blocks);
    EXPECT_EQ(load.total_blocks, expected.total_blocks);
    EXPECT_EQ(load.tokens_in_flight, expected.tokens_in_flight);
  }

  // With no more arrivals everything ends. Every step computes at least one token; the factor
  // covers tokens that preemptions compute again.
  void Quiesce() {
    int64_t allowed = 100 + 20 * reference_.WorkLeft();
    while (sim_.HasWork() && !testing::Test::HasFailure()) {
      while (sim_.steps_in_flight() < depth_ && Schedule()) {
        ASSERT_GT(allowed--, 0) << "no end in sight";
      }
      ASSERT_GT(sim_.steps_in_flight(), 0) << "live requests, and nothing to run";
      Retire();
    }
    while (sim_.steps_in_flight() > 0) Retire();
    sim_.ExpectIdle();
  }

  // Under every schedule a request that ended by itself gave exactly its own tokens, and a request
  // that was ended from outside gave the first of them.
  void CheckOutputs() {
    for (int32_t i = 1; i <= num_requests_; ++i) {
      const RequestId id = static_cast<RequestId>(i);
      const Outcome& outcome = sim_.outcome(id);
      const FinishReason reason = outcome.finish.reason;
      const bool ended_from_outside =
          reason == FinishReason::kCancelled || reason == FinishReason::kDeadline ||
          reason == FinishReason::kDraining || reason == FinishReason::kEngineFault;
      if (!ended_from_outside) {
        sim_.ExpectUndisturbed(id);
        continue;
      }
      std::vector<int32_t> tokens = Expect(id, sim_.spec(id), model_, config_.max_model_len).tokens;
      ASSERT_LE(outcome.tokens.size(), tokens.size());
      tokens.resize(outcome.tokens.size());
      EXPECT_EQ(outcome.tokens, tokens) << "request " << id;
    }
  }

  std::mt19937_64 random_;
  const SchedulerConfig config_;
  const ShadowModel model_;
  const int32_t depth_;
  const int32_t arrivals_;  // of a hundred operations
  const int32_t long_prompt_one_in_;
  const int32_t long_output_one_in_;
  const int32_t num_tenants_;
  SimulatedEngine sim_;
  ReferenceScheduler reference_;
  int32_t num_requests_ = 0;
  int64_t num_steps_ = 0;
  std::map<FinishReason, int64_t> reasons_;
};

TEST(SchedulerRandomTest, AgreesWithTheReferenceAndGivesEveryRequestItsOwnTokens) {
  int64_t num_steps = 0;
  int64_t num_preempted = 0;
  int64_t num_blocked_queues = 0;
  int64_t num_aged_prefills = 0;
  int64_t num_spared = 0;
  int64_t num_found_tokens = 0;
  int64_t num_evicted = 0;
  int64_t num_duplicates = 0;
  int64_t num_part_claims = 0;
  int64_t num_overtaken_prefills = 0;
  int64_t num_held_back = 0, num_guessed = 0, num_right_guesses = 0, num_short_guesses = 0;
  std::map<FinishReason, int64_t> reasons;
  uint64_t seed = random_steps.only_seed != 0 ? random_steps.only_seed : 1;
  for (;; ++seed) {
    SCOPED_TRACE("replay with --seed=" + std::to_string(seed));
    Program program(seed);
    program.Run();
    num_steps += program.num_steps();
    num_preempted += program.reference().preempted();
    num_blocked_queues += program.reference().num_blocked_queues();
    num_aged_prefills += program.reference().num_aged_prefills();
    num_spared += program.reference().num_spared();
    num_found_tokens += program.reference().num_found_tokens();
    num_evicted += program.reference().num_evicted();
    num_duplicates += program.reference().num_duplicates();
    num_part_claims += program.reference().num_part_claims();
    num_held_back += program.reference().num_held_back();
    num_guessed += program.reference().num_guessed();
    num_right_guesses += program.reference().num_right_guesses();
    num_short_guesses += program.reference().num_short_guesses();
    num_overtaken_prefills += program.reference().num_overtaken_prefills();
    for (const auto& [reason, count] : program.reasons()) reasons[reason] += count;
    if (testing::Test::HasFailure() || random_steps.only_seed != 0 ||
        num_steps >= random_steps.steps)
      break;
  }
  std::cout << num_steps << " steps, " << num_preempted << " preemptions, " << num_spared
            << " victims spared, " << num_blocked_queues << " times a queue closed for its head, "
            << num_aged_prefills << " aged prefills, " << num_found_tokens << " tokens found, "
            << num_evicted << " blocks evicted, " << num_duplicates << " duplicates, "
            << num_part_claims << " rows or blocks claimed by tenants, " << num_overtaken_prefills
            << " prefills overtaken, " << num_held_back << " floods held back, " << num_guessed
            << " tokens guessed, " << num_right_guesses << " right, last seed " << seed;
  for (const auto& [reason, count] : reasons) {
    std::cout << ", reason " << static_cast<int>(reason) << ": " << count;
  }
  std::cout << "\n";
  if (testing::Test::HasFailure() || random_steps.only_seed != 0) return;
  // The programs reach the cases that they exist for.
  EXPECT_GT(num_preempted, num_steps / 1000);
  EXPECT_GT(num_blocked_queues, 0);
  EXPECT_GT(num_aged_prefills, 0);
  EXPECT_GT(num_spared, 0);
  EXPECT_GT(num_found_tokens, num_steps / 10);
  EXPECT_GT(num_evicted, num_steps / 100);
  EXPECT_GT(num_duplicates, 0);
  EXPECT_GT(num_part_claims, num_steps / 1000);
  EXPECT_GT(num_overtaken_prefills, num_steps / 1000);
  EXPECT_GT(num_held_back, num_steps / 1000);
  EXPECT_GT(num_guessed, num_steps / 20);
  EXPECT_GT(num_guessed - num_right_guesses, num_guessed / 20);
  EXPECT_GT(num_short_guesses, 0);
  for (const FinishReason reason :
       {FinishReason::kEos, FinishReason::kStopToken, FinishReason::kMaxTokens,
        FinishReason::kContextLimit, FinishReason::kDeadline, FinishReason::kCancelled,
        FinishReason::kDraining, FinishReason::kNumeric, FinishReason::kEngineFault}) {
    EXPECT_GT(reasons[reason], 0) << "reason " << static_cast<int>(reason);
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  quire::ReadRandomSteps(argc, argv);
  return RUN_ALL_TESTS();
}
