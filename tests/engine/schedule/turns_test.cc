// Turns: the prompt that the scheduler builds for a turn, its refusals, and the session after a
// refused or cut turn.
//
// Covers engine/values/admission.cc
#include "engine/schedule/turns.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

constexpr int32_t kContext = 32;

std::string Text(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

std::string Reason(const absl::Status& status) {
  const auto reason = status.GetPayload(kSessionReason);
  return reason.has_value() ? std::string(*reason) : "";
}

class TurnsTest : public testing::Test {
 protected:
  explicit TurnsTest(int64_t max_queued_tokens = 1000) : scheduler_(Config(max_queued_tokens)) {}

  static SchedulerConfig Config(int64_t max_queued_tokens) {
    SchedulerConfig config = SessionConfig(/*usable_blocks=*/64, /*num_pages=*/0, kContext);
    config.max_num_queued_tokens = max_queued_tokens;
    return config;
  }
  TurnStart Start(TurnRequest turn, std::vector<int32_t> prompt, int32_t max_tokens = 4) {
    auto request = std::make_unique<Request>();
    request->id = ++last_id_;
    request->prompt = std::move(prompt);
    request->sampling.max_tokens = max_tokens;
    request->session_turn = std::move(turn);
    events_ = {};
    scheduler_.AddTurn(std::move(request), 1, events_);
    scheduler_.CheckInvariants();
    return events_.starts.at(0);
  }
  absl::StatusOr<SessionInfo> Get() {
    SessionAnswer answer = scheduler_.Run({.name = "s", .action = SessionOperation::Get()}, 1);
    if (!answer.status.ok()) return answer.status;
    return answer.sessions.at(0);
  }

  Scheduler scheduler_;
  SchedulerEvents events_;
  RequestId last_id_ = 0;
};

TEST_F(TurnsTest, FramesTheFirstPromptOfASession) {
  const TurnRequest turn{.session = "s", .create_session = true, .prefix = {7}, .suffix = {8, 9}};
  EXPECT_EQ(Start(turn, {1, 2}).prompt_tokens, 5);
  EXPECT_EQ(Get()->state, SessionState::kActive);
  scheduler_.CancelAll(FinishReason::kCancelled, 1, events_);
  // Cancelled: the session is as it was, and the turn can be sent again.
  EXPECT_EQ(Get()->position, 0);
  EXPECT_EQ(Get()->turns, 0u);
  EXPECT_EQ(Start(turn, {}).prompt_tokens, 3);
}

TEST_F(TurnsTest, RefusesAndLeavesNoSessionBehind) {
  const TurnRequest turn{.session = "s", .create_session = true};
  EXPECT_EQ(Reason(Start({.session = "s"}, {1}).status), "SESSION_NOT_FOUND");
  EXPECT_EQ(Reason(Start(turn, {}).status), "EMPTY_PROMPT");
  EXPECT_EQ(Text(Start(turn, std::vector<int32_t>(kContext, 1)).status),
            "prompt has 32 tokens; the context of 32 tokens leaves no room for output; truncate "
            "the session, or start another");
  EXPECT_EQ(Text(Start(turn, {1, 2}, 31).status),
            "max_tokens 31 and the prompt's 2 tokens exceed the context of 32 tokens; ask for at "
            "most 30");
  EXPECT_EQ(
      Reason(Start({.session = "s", .expected_position = 1, .create_session = true}, {1}).status),
      "WRONG_POSITION");
  EXPECT_FALSE(Get().ok());
  EXPECT_FALSE(scheduler_.HasWork());
}

class FullQueueTest : public TurnsTest {
 protected:
  FullQueueTest() : TurnsTest(/*max_queued_tokens=*/10) {}
};

TEST_F(FullQueueTest, BoundsThePromptTokensThatWait) {
  EXPECT_TRUE(
      Start({.session = "s", .create_session = true}, std::vector<int32_t>(8, 1)).status.ok());
  const TurnStart second = Start({.session = "t", .create_session = true}, {1, 2, 3});
  EXPECT_EQ(second.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Text(second.status),
            "the queue is full (1 requests, 8 prompt tokens waiting); retry later");
  EXPECT_TRUE(Start({.session = "t", .create_session = true}, {1, 2}).status.ok());
}

// The text layer finds a stop string later than the engine: the sequence may have ended by itself.
TEST(LateCutTest, CutsATurnThatHasEnded) {
  SimulatedEngine engine(SessionConfig(64, 0, kContext));
  engine.CreateSession(0, "s");
  const RequestId id =
      engine.Add({.prompt_tokens = 6, .max_tokens = 5, .stops_at_eos = false, .session = "s"});
  engine.RunToEnd(/*depth=*/2);
  EXPECT_EQ(engine.outcome(id).finish.position, 11);
  engine.Cancel(id, FinishReason::kStopText, 2);
  EXPECT_EQ(engine.SessionTokens(0, "s").size(), 8u);
  engine.CheckSession(0, "s");
  // The next turn continues behind the cut. From then on the id of the last turn is unknown.
  const RequestId next =
      engine.Add({.prompt_tokens = 1, .max_tokens = 3, .stops_at_eos = false, .session = "s"});
  engine.RunToEnd(/*depth=*/2);
  EXPECT_EQ(engine.outcome(next).finish.position, 12);
  engine.Cancel(id, FinishReason::kStopText, 1);
  engine.CheckSession(0, "s");
  EXPECT_EQ(engine.SessionTokens(0, "s").size(), 12u);
}

TEST(LateCutTest, CutsATurnThatARefusedTurnFollows) {
  SimulatedEngine engine(SessionConfig(64, 0, kContext));
  engine.CreateSession(0, "s");
  const RequestId id =
      engine.Add({.prompt_tokens = 6, .max_tokens = 5, .stops_at_eos = false, .session = "s"});
  engine.RunToEnd(/*depth=*/2);
  EXPECT_EQ(engine.Add({.prompt_tokens = kContext, .max_tokens = 5, .session = "s"}), 0u);
  engine.Cancel(id, FinishReason::kStopText, 2);
  EXPECT_EQ(engine.SessionTokens(0, "s").size(), 8u);
  engine.CheckSession(0, "s");
}

// The turn's end is known, but steps in flight still hold it: it is committed when they retire.
TEST(LateCutTest, CutsATurnThatIsAboutToEnd) {
  SimulatedEngine engine(SessionConfig(64, 0, kContext));
  engine.CreateSession(0, "s");
  RequestSpec spec{.prompt_tokens = 6, .max_tokens = 20, .stops_at_eos = false, .session = "s"};
  const RequestId id = engine.Add(spec);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(engine.Schedule());
    if (i > 0) engine.Retire();
  }
  engine.Cancel(id, FinishReason::kStopText, 3);
  EXPECT_FALSE(engine.outcome(id).finished);
  engine.Cancel(id, FinishReason::kStopText, 1);
  engine.RunToEnd(/*depth=*/2);
  EXPECT_EQ(engine.outcome(id).finish.position, 7);
  engine.CheckSession(0, "s");
}

}  // namespace
}  // namespace quire
