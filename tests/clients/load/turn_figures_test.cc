// The figures of turns, on a run whose answers are worked out by hand.
#include "clients/load/figures/turn_figures.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "clients/load/report/reports.h"
#include "tests/clients/load/made_runs.h"

namespace quire::load {
namespace {

using testing::HasSubstr;
using testing::Not;

// A turn sent at 0 whose first token came after `ttft_ms`.
RequestRecord Turn(int32_t turn, int64_t ttft_ms, int prompt_tokens, ResidencyRecord residency) {
  RequestRecord r = MadeRequest({0, 0, ttft_ms, ttft_ms + 10, ttft_ms + 11}, prompt_tokens, 2);
  r.conversation = 0;
  r.turn = turn;
  r.residency = residency;
  return r;
}

RunRecord Conversations() {
  RunRecord run = HandMadeRun();
  run.info.conversations = run.info.sessions = true;
  RequestRecord failed = Turn(1, 5000, 100, {5, 0, 0, 99, 0});
  failed.outcome = Outcome::kFailed;
  RequestRecord warmup = Turn(0, 6000, 100, {2, 50, 0, 0, 0});
  warmup.warmup = true;
  run.requests = {warmup,
                  Turn(0, 100, 40, {1, 0, 0, 0, 0}),
                  Turn(0, 300, 60, {1, 0, 0, 0, 0}),
                  Turn(1, 20, 90, {2, 64, 0, 0, 0}),
                  Turn(1, 40, 110, {3, 32, 48, 0, 0.004}),
                  Turn(2, 60, 150, {4, 0, 64, 50, 0.008}),
                  failed};
  return run;
}

TEST(TurnFiguresTest, AreThoseWorkedOutByHand) {
  const TurnFigures f = SummarizeTurns(Conversations());
  ASSERT_EQ(f.ttft.size(), 3u);
  EXPECT_EQ(f.ttft[0].count, 2);
  EXPECT_DOUBLE_EQ(f.ttft[0].mean, 200);
  EXPECT_DOUBLE_EQ(f.ttft[1].mean, 30);
  EXPECT_DOUBLE_EQ(f.ttft[2].mean, 60);
  EXPECT_EQ(f.ttft_later.count, 3);
  EXPECT_DOUBLE_EQ(f.ttft_later.mean, 40);
  EXPECT_DOUBLE_EQ(f.ttft_later.max, 60);
  EXPECT_EQ(f.device_tokens, 64 + 32);
  EXPECT_EQ(f.host_tokens, 48 + 64);
  EXPECT_EQ(f.recomputed_tokens, 50);
  EXPECT_EQ(f.known_tokens(), 258);
  EXPECT_EQ(f.new_tokens, 40 + 60 + 26 + 30 + 36);
  EXPECT_THAT(f.outcomes, testing::ElementsAre(0, 2, 1, 1, 1, 0));
  EXPECT_EQ(f.restore.count, 2);
  EXPECT_DOUBLE_EQ(f.restore.median, 6);
}

TEST(TurnFiguresTest, TheTerminalHasThem) {
  const std::string text = TurnsText(Conversations());
  EXPECT_THAT(text, HasSubstr("in sessions"));
  EXPECT_THAT(text,
              HasSubstr("\n1                 2     200.00     200.00     280.00     298.00\n"));
  EXPECT_THAT(text,
              HasSubstr("\nlater             3      40.00      40.00      56.00      59.60\n"));
  EXPECT_THAT(text, HasSubstr("KV of 258 known tokens: 37.2 % device, 43.4 % host, 19.4 % computed "
                              "again; 192 tokens new\n"));
  EXPECT_THAT(text, HasSubstr("Outcomes: 2 none, 1 device, 1 restored, 1 partial\n"));
  EXPECT_THAT(text, HasSubstr("Restores: 2, of 6.00 ms at p50 and 7.96 at p99\n"));
  RunRecord plain = Conversations();
  plain.info.conversations = false;
  EXPECT_EQ(TurnsText(plain), "");
}

TEST(TurnFiguresTest, TheReportsHaveThem) {
  const RunRecord run = Conversations();
  const auto j = nlohmann::json::parse(PerfJsonLine(run, Summarize(run)));
  EXPECT_EQ(j["settings"]["sessions"], true);
  EXPECT_EQ(j["latencies"]["ttft_first_turn_ms"]["mean"], 200);
  EXPECT_EQ(j["latencies"]["ttft_later_turns_ms"]["p50"], 40);
  EXPECT_EQ(j["latencies"]["restore_ms"]["count"], 2);
  EXPECT_EQ(j["ttft_ms_by_turn"].size(), 3u);
  EXPECT_EQ(j["residency"]["host_tokens"], 112);
  EXPECT_EQ(j["residency"]["outcomes"]["restored"], 1);
  const std::string page = HtmlPage({run}, {Summarize(run)});
  EXPECT_THAT(page, HasSubstr("<h2>Conversations</h2>"));
  EXPECT_THAT(page, HasSubstr("kept in sessions"));
  EXPECT_THAT(HtmlPage({HandMadeRun()}, {Summarize(HandMadeRun())}),
              Not(HasSubstr("Conversations")));
}

// bench/turns reads them.
TEST(TurnFiguresTest, EachTurnHasALineWithItsWayToTheFirstToken) {
  RunRecord run = Conversations();
  run.requests[1].server = {.opened = 0.0015,
                            .restore_asked = 0.002,
                            .restored = 0.025,
                            .first_step = 0.03,
                            .first_token = 0.05};
  run.requests[2].conversation = -1;
  std::istringstream lines(TurnsJsonLines(run));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const auto j = nlohmann::json::parse(line);
  EXPECT_EQ(j["opened_ms"], 1.5);
  EXPECT_EQ(j["restore_asked_ms"], 2);
  EXPECT_EQ(j["restored_ms"], 25);
  EXPECT_EQ(j["first_step_ms"], 30);
  EXPECT_EQ(j["first_token_ms"], 50);
  EXPECT_EQ(j["turn"], 0);
  EXPECT_EQ(j["kv"], "none");
  EXPECT_EQ(j["ttft_ms"], 100);
  size_t count = 1;
  while (std::getline(lines, line)) ++count;
  EXPECT_EQ(count, 4u);  // neither the failed one, nor the warm-up, nor the one of no conversation
}

TEST(TurnFiguresTest, ARunOfNothingHasNone) {
  RunRecord run = Conversations();
  run.requests.clear();
  const TurnFigures f = SummarizeTurns(run);
  EXPECT_TRUE(f.ttft.empty());
  EXPECT_EQ(f.known_tokens(), 0);
  EXPECT_THAT(TurnsText(run), HasSubstr("KV of 0 known tokens"));
}

}  // namespace
}  // namespace quire::load
