// Scheduler: requests whose output follows a guide, beside others that are free, under preemption,
// pauses, deaths of workers, cancels and late masks.
// Covers engine/masks/draw_masks.cc, engine/masks/late_draws.cc
#include "engine/schedule/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/masks/draw_masks.h"
#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

using testing::ElementsAre;

constexpr int32_t kEos = 0;

SchedulerConfig Config() {
  SchedulerConfig config;
  config.num_blocks = 101;
  config.block_size = 4;
  config.max_model_len = 64;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 32;
  config.max_num_queued_reqs = 64;
  config.growth_horizon = 8;
  return config;
}

std::shared_ptr<const ScriptedGrammar> Grammar(GuideScript script) {
  return std::make_shared<const ScriptedGrammar>(std::move(script));
}

// States in a ring, each with some tokens; the end token in some of them.
std::shared_ptr<const ScriptedGrammar> RandomGrammar(uint64_t seed) {
  std::mt19937_64 random(seed);
  GuideScript script;
  script.moves.resize(5);
  for (auto& moves : script.moves) {
    for (int i = 0; i < 3; ++i) moves[1 + static_cast<int32_t>(random() % 999)] = random() % 5;
    if (random() % 3 == 0) moves[kEos] = 0;
  }
  return Grammar(std::move(script));
}

TEST(SchedulerGuideTest, SendsTheMaskOfEachDraw) {
  SimulatedEngine sim(Config());
  const RequestId id =
      sim.Add({.prompt_tokens = 3,
               .max_tokens = 9,
               .grammar = Grammar({.moves = {{{33, 1}}, {{64, 2}}, {{kEos, 2}}}})});
  ASSERT_TRUE(sim.Schedule());
  const StepPlan& plan = sim.last_step_plan();
  ASSERT_EQ(plan.masks.size(), 1u);
  EXPECT_EQ(plan.masks[0].row, plan.work[0].row);
  ASSERT_EQ(plan.mask_words.size(), 32u);  // 1000 tokens
  EXPECT_EQ(plan.mask_words[1], 2u);
  EXPECT_EQ(plan.mask_words[2], 0u);
  sim.RunToEnd(2);
  EXPECT_THAT(sim.outcome(id).tokens, ElementsAre(33, 64, kEos));
  EXPECT_EQ(sim.outcome(id).finish.reason, FinishReason::kEos);
}

TEST(SchedulerGuideTest, PlansNoSecondDrawBeforeTheFirstIsKnown) {
  SimulatedEngine sim(Config());
  const RequestId guided = sim.Add({.max_tokens = 5, .grammar = RandomGrammar(1)});
  const RequestId free = sim.Add({.max_tokens = 5});
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_plan().size(), 2u);
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.ShareOf(guided).count, 0);
  EXPECT_EQ(sim.ShareOf(free).count, 1);
  sim.Retire();
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.ShareOf(guided).count, 1);
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(guided);
  sim.ExpectUndisturbed(free);
}

TEST(SchedulerGuideTest, PlansADrawWhoseMaskIsNotMade) {
  SimulatedEngine sim(Config());
  sim.UseMaskBoard();
  const RequestId guided = sim.Add({.max_tokens = 6, .grammar = RandomGrammar(1)});
  const RequestId free = sim.Add({.max_tokens = 6});
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_step_plan().num_late_masks, 0);
  ASSERT_TRUE(sim.Schedule());
  ASSERT_EQ(sim.last_step_plan().masks.size(), 1u);
  EXPECT_EQ(sim.last_step_plan().masks[0].is_late, 1u);
  EXPECT_TRUE(sim.last_step_plan().mask_words.empty());
  EXPECT_FALSE(sim.scheduler().AwaitsMasks());      // the oldest step has its own
  for (size_t tokens = 1; tokens <= 6; ++tokens) {  // a token in every step
    sim.Retire();
    EXPECT_EQ(sim.outcome(guided).tokens.size(), tokens);
    EXPECT_EQ(sim.outcome(free).tokens.size(), tokens);
    EXPECT_EQ(sim.Schedule(), tokens < 5);
  }
  EXPECT_EQ(sim.load().late_masks, 0u);
  sim.ExpectUndisturbed(guided);
  sim.ExpectUndisturbed(free);
  sim.ExpectIdle();
}

TEST(SchedulerGuideTest, PlansADrawAgainThatHadNoMask) {
  for (const bool withheld : {false, true}) {
    SimulatedEngine sim(Config());
    sim.UseMaskBoard();
    const RequestId guided = sim.Add({.max_tokens = 6, .grammar = RandomGrammar(1)});
    ASSERT_TRUE(sim.Schedule());
    ASSERT_TRUE(sim.Schedule());
    sim.holds_masks = true;
    sim.Retire();
    ASSERT_TRUE(sim.Schedule());  // a draw behind the one that will lack its mask
    EXPECT_TRUE(sim.scheduler().AwaitsMasks());
    if (withheld) {
      sim.scheduler().WithholdMasks(sim.now_ns);
      sim.MakeMasks();  // too late
    }
    EXPECT_EQ(sim.scheduler().AwaitsMasks(), !withheld);
    sim.Retire();
    EXPECT_EQ(sim.outcome(guided).tokens.size(), 1u);
    EXPECT_FALSE(sim.scheduler().AwaitsMasks());  // nor does the draw behind it
    EXPECT_FALSE(sim.Schedule());                 // before that has retired
    sim.Retire();
    EXPECT_EQ(sim.outcome(guided).tokens.size(), 1u);
    EXPECT_EQ(sim.scheduler().WaitsForMasks(), !withheld);
    sim.MakeMasks();
    EXPECT_EQ(sim.load().late_masks, 1u);
    ASSERT_TRUE(sim.Schedule());
    EXPECT_EQ(sim.last_step_plan().num_late_masks, 0);
    sim.Retire();
    EXPECT_EQ(sim.outcome(guided).tokens.size(), 2u);
    sim.holds_masks = false;
    sim.MakeMasks();
    sim.RunToEnd(2);
    sim.ExpectUndisturbed(guided);
    sim.ExpectIdle();
  }
}

// A guided row with a draw in flight that lacks its mask, which is to be made.
class LateMaskTest : public ::testing::Test {
 protected:
  LateMaskTest() {
    sim.UseMaskBoard();
    guided = sim.Add({.max_tokens = 90, .grammar = Grammar({.moves = {{{5, 0}, {6, 0}}}})});
    EXPECT_TRUE(sim.Schedule());
    EXPECT_TRUE(sim.Schedule());
    sim.holds_masks = true;
    sim.Retire();
    EXPECT_TRUE(sim.scheduler().AwaitsMasks());
  }
  // At this many nanoseconds after the mask was asked for.
  void MakeMasksAfter(int64_t ns) {
    sim.now_ns += ns;
    sim.MakeMasks();
  }
  void WithholdAfter(int64_t ns) {
    sim.now_ns += ns;
    sim.scheduler().WithholdMasks(sim.now_ns);
  }

  SimulatedEngine sim{Config()};
  RequestId guided = 0;
};

TEST_F(LateMaskTest, ARowDrawsEarlyUntilItsMasksComeInTimeAgain) {
  WithholdAfter(100);
  MakeMasksAfter(50);
  sim.Retire();
  for (const int64_t made_after : {150, 101, 100}) {
    ASSERT_TRUE(sim.Schedule());
    EXPECT_EQ(sim.last_step_plan().num_late_masks, 0);
    EXPECT_FALSE(sim.Schedule()) << "a draw whose mask is not made";
    sim.Retire();
    EXPECT_FALSE(sim.Schedule());
    MakeMasksAfter(made_after);
  }
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_step_plan().num_late_masks, 0);  // it is there
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_step_plan().num_late_masks, 1);
  EXPECT_EQ(sim.outcome(guided).tokens.size(), 4u);
  sim.holds_masks = false;
  sim.MakeMasks();
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(guided);
}

// Steps may take longer by now, so that a mask of the same time would be in time.
TEST_F(LateMaskTest, ASlowGuideDrawsLateAgainNowAndThen) {
  for (int round = 0; round < 3; ++round) {
    WithholdAfter(100);
    MakeMasksAfter(50);
    sim.Retire();
    ASSERT_TRUE(sim.Schedule());
    int early = 0;
    for (; !sim.Schedule(); ++early) {  // nothing is planned behind a draw without its mask
      ASSERT_LT(early, 20);
      EXPECT_EQ(sim.last_step_plan().num_late_masks, 0);
      sim.Retire();
      MakeMasksAfter(500);
      ASSERT_TRUE(sim.Schedule());
    }
    EXPECT_EQ(early, DrawMasks::kEarlyDraws);
    EXPECT_EQ(sim.last_step_plan().num_late_masks, 1);
    sim.Retire();
    EXPECT_TRUE(sim.scheduler().AwaitsMasks());
  }
}

TEST_F(LateMaskTest, AWithheldMaskCountsOnceThoughNoStepIsPlannedMeanwhile) {
  WithholdAfter(100);
  MakeMasksAfter(0);
  EXPECT_EQ(sim.load().late_masks, 1u);
  sim.holds_masks = false;
  sim.Retire();
  sim.RunToEnd(2);
  EXPECT_EQ(sim.load().late_masks, 1u);
}

TEST_F(LateMaskTest, NoDrawIsPlannedBehindOneWhoseMaskIsWithheld) {
  WithholdAfter(100);
  EXPECT_FALSE(sim.Schedule());
  MakeMasksAfter(0);
  EXPECT_EQ(sim.load().late_masks, 1u);
  EXPECT_FALSE(sim.Schedule());
  sim.Retire();
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_step_plan().num_late_masks, 0);
}

TEST(SchedulerGuideTest, StepCostsLeaveOutWhatMasksHeldUp) {
  SimulatedEngine sim(Config());
  sim.UseMaskBoard();
  sim.ns_per_token = 1000;
  sim.Add({.max_tokens = 50, .grammar = Grammar({.moves = {{{5, 0}, {6, 0}}}})});
  const auto schedule = [&sim] {
    sim.Add({.prompt_tokens = 9, .max_tokens = 1});
    EXPECT_TRUE(sim.Schedule());
  };
  const auto retire = [&sim] {
    sim.Retire();
    sim.now_ns = sim.last_result().finished_ns;
  };
  for (int i = 0; i < 12; ++i) {
    schedule();
    sim.holds_masks = i == 11;
    retire();
  }
  ASSERT_TRUE(sim.load().step_cost.known);
  // The time of a token, in what part of the step the mask comes, and whether it tells the costs.
  struct Case {
    int64_t ns_per_token;
    double part;
    bool withheld, teaches;
  };
  for (const auto& [ns_per_token, part, withheld, teaches] :
       {Case{1150, 0.6, false, true}, Case{2000, 0.6, false, false}, Case{2000, 0.4, false, true},
        Case{2000, 0.6, true, false}}) {
    sim.ns_per_token = ns_per_token;
    schedule();
    EXPECT_TRUE(sim.scheduler().AwaitsMasks());
    const double before = sim.load().step_cost_error;
    const auto tokens = static_cast<double>(ns_per_token * sim.last_step_plan().num_tokens);
    sim.now_ns += static_cast<int64_t>(part * tokens);
    if (withheld) sim.scheduler().WithholdMasks(sim.now_ns);
    sim.MakeMasks();
    retire();
    EXPECT_EQ(sim.load().step_cost_error > before, teaches) << part << withheld;
  }
}

TEST(SchedulerGuideTest, AnEndWithholdsTheMasksThatDrawsInFlightWaitFor) {
  SimulatedEngine sim(Config());
  sim.UseMaskBoard();
  const RequestId guided = sim.Add({.max_tokens = 6, .grammar = RandomGrammar(1)});
  ASSERT_TRUE(sim.Schedule());
  ASSERT_TRUE(sim.Schedule());
  sim.holds_masks = true;
  sim.Retire();
  EXPECT_TRUE(sim.scheduler().AwaitsMasks());
  sim.Cancel(guided);
  EXPECT_FALSE(sim.scheduler().AwaitsMasks());
  sim.Retire();
  sim.ExpectIdle();
}

TEST(SchedulerGuideTest, ALateMaskDelaysItsOwnRequestAlone) {
  SimulatedEngine sim(Config());
  sim.holds_masks = true;
  const RequestId guided = sim.Add({.max_tokens = 3, .grammar = RandomGrammar(2)});
  EXPECT_TRUE(sim.scheduler().WaitsForMasks());
  EXPECT_FALSE(sim.Schedule());
  const RequestId free = sim.Add({.max_tokens = 3});
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.ShareOf(guided).count, 0);
  EXPECT_EQ(sim.ShareOf(free).count, 4);
  while (sim.steps_in_flight() > 0) {
    sim.Retire();
    sim.Schedule();
  }
  EXPECT_TRUE(sim.outcome(free).finished);
  sim.MakeMasks();
  EXPECT_FALSE(sim.scheduler().WaitsForMasks());
  EXPECT_EQ(sim.load().late_masks, 1u);
  ASSERT_TRUE(sim.Schedule());
  sim.Retire();
  EXPECT_EQ(sim.outcome(guided).tokens.size(), 1u);
  EXPECT_FALSE(sim.Schedule());
  sim.MakeMasks();
  EXPECT_TRUE(sim.Schedule());
  sim.holds_masks = false;
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(guided);
  sim.ExpectUndisturbed(free);
}

TEST(SchedulerGuideTest, EndsWhenNoTokenIsLeft) {
  SimulatedEngine sim(Config());
  const auto grammar = Grammar({.moves = {{{9, 1}}, {}}});
  const RequestId guided = sim.Add({.max_tokens = 5, .grammar = grammar});
  const RequestId free = sim.Add({.max_tokens = 5});
  sim.RunToEnd(2);
  EXPECT_THAT(sim.outcome(guided).tokens, ElementsAre(9));
  EXPECT_EQ(sim.outcome(guided).finish.reason, FinishReason::kNoToken);
  sim.ExpectUndisturbed(guided);
  sim.ExpectUndisturbed(free);
}

TEST(SchedulerGuideTest, EndsWhenBansLeaveNothingOfTheMask) {
  SimulatedEngine sim(Config());
  // The guide wants the end token, which min_tokens bans.
  const RequestId guided =
      sim.Add({.max_tokens = 5, .min_tokens = 2, .grammar = Grammar({.moves = {{{kEos, 0}}}})});
  const RequestId free = sim.Add({.max_tokens = 5});
  sim.RunToEnd(2);
  EXPECT_EQ(sim.outcome(guided).finish.reason, FinishReason::kNoToken);
  EXPECT_TRUE(sim.outcome(guided).tokens.empty());
  sim.ExpectUndisturbed(free);
}

TEST(SchedulerGuideTest, TellsTheGuideHowManyTokensMayFollow) {
  // Tokens 5 and 6 for ever; in a hurry only 5.
  const auto grammar = Grammar({.moves = {{{5, 0}, {6, 0}}}, .hurry_below = 3});
  SimulatedEngine sim(Config());
  const RequestId by_max = sim.Add({.max_tokens = 12, .grammar = grammar});
  const RequestId by_context =
      sim.Add({.prompt_tokens = 50, .max_tokens = 1000, .grammar = grammar});
  sim.RunToEnd(2);
  for (const RequestId id : {by_max, by_context}) {
    const std::vector<int32_t>& tokens = sim.outcome(id).tokens;
    ASSERT_EQ(tokens.size(), id == by_max ? 12u : 14u);
    EXPECT_EQ(std::vector<int32_t>(tokens.end() - 4, tokens.end()), std::vector<int32_t>(4, 5));
    EXPECT_NE(std::count(tokens.begin(), tokens.end(), 6), 0);
    sim.ExpectUndisturbed(id);
  }
}

TEST(SchedulerGuideTest, SaysThatTheEndCutTheStructure) {
  // An even number of tokens is complete.
  const auto grammar = Grammar({.moves = {{{5, 1}, {6, 1}}, {{5, 0}, {6, 0}}}, .incomplete = {1}});
  SimulatedEngine sim(Config());
  struct Expected {
    RequestId id;
    FinishReason reason;
  };
  const std::vector<Expected> ends = {
      {sim.Add({.max_tokens = 8, .grammar = grammar}), FinishReason::kMaxTokens},
      {sim.Add({.max_tokens = 9, .grammar = grammar}), FinishReason::kTruncated},
      {sim.Add({.prompt_tokens = 50, .max_tokens = 1000, .grammar = grammar}),
       FinishReason::kContextLimit},
      {sim.Add({.prompt_tokens = 51, .max_tokens = 1000, .grammar = grammar}),
       FinishReason::kTruncated},
      {sim.Add({.max_tokens = 9}), FinishReason::kMaxTokens}};
  sim.RunToEnd(2);
  for (const auto& [id, reason] : ends) {
    EXPECT_STREQ(Name(sim.outcome(id).finish.reason), Name(reason)) << id;
    sim.ExpectUndisturbed(id);
  }
}

TEST(SchedulerGuideTest, APlanCarriesNoMoreMasksThanItHasRoomFor) {
  SchedulerConfig config = Config();
  config.max_num_seqs = 6;
  ShadowModel model = {.eos_probability = 1};
  model.vocab_size = 20'000'000;  // one mask is more than half of the room
  SimulatedEngine sim(config, model);
  std::vector<RequestId> ids;
  const auto grammar = Grammar({.moves = {{{kEos, 0}}}});
  for (int i = 0; i < 3; ++i) ids.push_back(sim.Add({.max_tokens = 3, .grammar = grammar}));
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_step_plan().masks.size(), 1u);
  EXPECT_EQ(sim.last_plan().size(), 1u);
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_step_plan().masks.size(), 1u);
  sim.RunToEnd(2);
  for (const RequestId id : ids) sim.ExpectUndisturbed(id);
}

// A plan has room for two masks, and four requests need one: all go on. Masks that come late take
// no room, so that a request that comes later does not wait for the end of an earlier one.
TEST(SchedulerGuideTest, MoreRequestsThanAPlanHasMasksForShareTheSteps) {
  for (const bool board : {false, true}) {
    SCOPED_TRACE(board ? "with a board" : "without");
    SchedulerConfig config = Config();
    config.max_num_seqs = 8;
    config.max_model_len = 400;
    const ShadowModel model = {.vocab_size = (1 << 19) * 32};
    SimulatedEngine sim(config, model);
    if (board) sim.UseMaskBoard();
    const auto grammar = Grammar({.moves = {{{5, 0}, {6, 0}}}});
    std::vector<RequestId> ids;
    const auto run = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        while (sim.steps_in_flight() < 2 && sim.Schedule()) {
        }
        if (sim.steps_in_flight() > 0) sim.Retire();
      }
    };
    for (int i = 0; i < 4; ++i) ids.push_back(sim.Add({.max_tokens = 60, .grammar = grammar}));
    run(8);
    for (const RequestId id : ids) EXPECT_GE(sim.outcome(id).tokens.size(), 2u) << id;
    if (!board) continue;
    const RequestId other = sim.Add({.max_tokens = 60, .tenant = 7, .grammar = grammar});
    run(4);
    EXPECT_FALSE(sim.outcome(other).tokens.empty());
  }
}

TEST(SchedulerGuideTest, WorkersDieAndTheGuideGoesOn) {
  for (const bool board : {false, true}) {
    SimulatedEngine sim(Config());
    if (board) sim.UseMaskBoard();
    const RequestId id = sim.Add({.max_tokens = 20, .grammar = RandomGrammar(4)});
    for (int death = 0; death < 2; ++death) {
      for (int i = 0; i < 4 && sim.HasWork(); ++i) {
        sim.Schedule();
        sim.Retire();
      }
      sim.Schedule();
      sim.Schedule();
      sim.KillWorker();
    }
    sim.RunToEnd(2);
    sim.ExpectUndisturbed(id);
  }
}

// Few blocks, so that sequences are preempted; masks come at any time; workers die, readers pause
// and clients leave. Every output that is not cut is what it would be alone.
class SchedulerGuideRandomTest : public ::testing::TestWithParam<bool> {};  // with a mask board

TEST_P(SchedulerGuideRandomTest, OutputsAreThoseOfEachRequestAlone) {
  int guided = 0, preempted = 0, late = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    SchedulerConfig config = Config();
    config.num_blocks = 24;
    config.growth_horizon = 0;
    ShadowModel model;
    model.eos_probability = 0.05;
    SimulatedEngine sim(config, model);
    if (GetParam()) sim.UseMaskBoard();
    sim.check_every = 7;
    std::vector<RequestId> ids;
    std::set<RequestId> cut;
    for (int turn = 0; turn < 300; ++turn) {
      sim.holds_masks = random() % 2 == 0;
      const uint64_t what = random() % 100;
      if (what < 12 && ids.size() < 25) {
        RequestSpec spec{.prompt_tokens = 1 + static_cast<int32_t>(random() % 30),
                         .max_tokens = 1 + static_cast<int32_t>(random() % 30)};
        if (random() % 3 != 0) spec.grammar = RandomGrammar(random());
        guided += spec.grammar != nullptr;
        ids.push_back(sim.Add(spec));
      } else if (what < 50) {
        if (sim.steps_in_flight() < 2 && sim.Schedule()) {
          late += sim.last_step_plan().num_late_masks;
        }
      } else if (what < 90) {
        if (sim.steps_in_flight() > 0) sim.Retire();
      } else if (what == 98) {
        sim.scheduler().WithholdMasks(sim.now_ns);
      } else if (what < 93 && !ids.empty()) {
        sim.scheduler().SetPaused(ids[random() % ids.size()], random() % 2 == 0);
      } else if (what < 94 && !ids.empty()) {
        cut.insert(ids[random() % ids.size()]);
        if (!sim.outcome(*cut.rbegin()).finished) sim.Cancel(*cut.rbegin());
      } else if (what == 99 && turn == 150) {
        sim.KillWorker();
      }
    }
    sim.holds_masks = false;
    for (const RequestId id : ids) sim.scheduler().SetPaused(id, false);
    sim.MakeMasks();
    sim.RunToEnd(2);
    preempted += sim.preempted();
    for (const RequestId id : ids) {
      if (sim.outcome(id).finish.reason == FinishReason::kCancelled) continue;
      sim.ExpectUndisturbed(id);
    }
  }
  EXPECT_GT(guided, 200);
  EXPECT_GT(preempted, 20);
  EXPECT_EQ(late > 1000, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Boards, SchedulerGuideRandomTest, ::testing::Bool());

}  // namespace
}  // namespace quire
