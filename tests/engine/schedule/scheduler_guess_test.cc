// Guesses in the scheduler: how many steps they save, that nothing behind an end is kept, and when
// no row guesses. The worker of these tests draws the tokens of a text that is known beforehand.
// Covers engine/schedule/guess_choice.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "engine/schedule/scheduler.h"

namespace quire {
namespace {

constexpr int32_t kEos = 2;

SchedulerConfig Config() {
  SchedulerConfig config;
  config.num_blocks = 1000;
  config.block_size = 16;
  config.max_model_len = 2000;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 512;
  config.max_num_queued_reqs = 100;
  config.step_guesses = 31;
  return config;
}

// Tokens `first`, first + 1, .. that never repeat.
std::vector<int32_t> Counting(int32_t size, int32_t first = 1000) {
  std::vector<int32_t> text(static_cast<size_t>(size));
  for (int32_t i = 0; i < size; ++i) text[static_cast<size_t>(i)] = first + i;
  return text;
}

std::vector<int32_t> Twice(std::vector<int32_t> text) {
  const auto once = text;
  text.insert(text.end(), once.begin(), once.end());
  return text;
}

class Simulation {
 public:
  explicit Simulation(const SchedulerConfig& config) : scheduler(config) {}

  // The first `num_prompt` tokens of the text are the prompt.
  std::unique_ptr<Request> Make(std::vector<int32_t> text, int32_t num_prompt) {
    auto request = std::make_unique<Request>();
    request->id = texts.size() + 1;
    request->prompt.assign(text.begin(), text.begin() + num_prompt);
    request->sampling.max_tokens = static_cast<int32_t>(text.size()) - num_prompt;
    request->sampling.row.seed = request->id;
    request->sampling.eos_token_ids = {kEos};
    request->max_guesses = 8;
    texts.push_back(std::move(text));
    return request;
  }
  void Start(std::unique_ptr<Request> request) { scheduler.Add(std::move(request)); }

  bool Schedule() {
    StepPlan plan;
    if (!scheduler.Schedule(0, plan, events)) return false;
    for (const NewRow& row : plan.new_rows) owners[row.row] = row.sampling.seed;
    for (const RowWork& work : plan.work) most_draws = std::max(most_draws, work.sample);
    flights.push_back(std::move(plan));
    return true;
  }
  void Retire() {
    StepResult result;
    result.step = flights.front().step;
    for (const RowWork& work : flights.front().work) {
      const std::vector<int32_t>& text = texts.at(owners.at(work.row) - 1);
      for (int32_t i = 1; i <= work.sample; ++i) {
        const auto position = static_cast<size_t>(work.start + work.count - work.sample + i);
        const int32_t token = position < text.size() ? text[position] : 99999;
        result.samples.push_back({work.row, {.token = token, .logprob = -0.5f * position}});
      }
    }
    result.reading_words.assign(flights.front().reading_words(), 1);
    flights.pop_front();
    ++num_steps;
    scheduler.Retire(result, 0, events);
    scheduler.CheckInvariants();
  }
  void ToEnd() {
    while (scheduler.HasWork()) {
      while (flights.size() < 2 && Schedule()) {
      }
      Retire();
    }
    while (!flights.empty()) Retire();
    // Each output is the beginning of its text, with its own log probabilities.
    std::map<RequestId, int32_t> next;
    for (const TokenEvent& event : events.tokens) {
      const int32_t at = starts[event.id] + next[event.id]++;
      ASSERT_EQ(event.token, texts.at(event.id - 1).at(static_cast<size_t>(at)));
      ASSERT_EQ(event.logprob, -0.5f * static_cast<float>(at));
    }
  }
  const FinishEvent& end(RequestId id) const {
    for (const FinishEvent& event : events.finishes) {
      if (event.id == id) return event;
    }
    ADD_FAILURE() << "no end of request " << id;
    return events.finishes.at(0);
  }
  // A request whose prompt is a text, and whose output is the same text again.
  RequestId Repeat(
      const std::vector<int32_t>& text,
      const std::function<void(Request&)>& change = [](Request&) {}) {
    auto request = Make(Twice(text), static_cast<int32_t>(text.size()));
    change(*request);
    const RequestId id = request->id;
    starts[id] = static_cast<int32_t>(text.size());
    Start(std::move(request));
    return id;
  }

  Scheduler scheduler;
  SchedulerEvents events;
  std::vector<std::vector<int32_t>> texts;
  std::map<RequestId, int32_t> starts;
  std::map<int32_t, RequestId> owners;
  std::deque<StepPlan> flights;
  int64_t num_steps = 0;
  int32_t most_draws = 0;
};

TEST(SchedulerGuessTest, ARepeatedTextTakesFewSteps) {
  Simulation run(Config());
  const RequestId id = run.Repeat(Counting(400));
  run.ToEnd();
  EXPECT_EQ(run.end(id).reason, FinishReason::kMaxTokens);
  EXPECT_EQ(run.end(id).usage.completion_tokens, 400);
  EXPECT_EQ(run.most_draws, 9);
  // A few tokens until the record is good, then nine a step.
  EXPECT_LT(run.num_steps, 15 + 400 / 9);
  const Usage& usage = run.end(id).usage;
  EXPECT_GT(usage.accepted_guesses, 340);
  EXPECT_EQ(usage.accepted_guesses, usage.guessed_tokens);
  EXPECT_EQ(run.events.guessed, usage.guessed_tokens);
  EXPECT_EQ(run.events.accepted, usage.accepted_guesses);
}

TEST(SchedulerGuessTest, ATextThatDoesNotRepeatRunsAsWithoutGuesses) {
  Simulation run(Config());
  auto request = run.Make(Counting(500), 100);
  run.starts[1] = 100;
  run.Start(std::move(request));
  for (int step = 0; step < 100; ++step) {
    while (run.flights.size() < 2) ASSERT_TRUE(run.Schedule());  // two steps in flight
    run.Retire();
  }
  run.ToEnd();
  EXPECT_EQ(run.num_steps, 400);
  EXPECT_EQ(run.most_draws, 1);
  EXPECT_EQ(run.end(1).usage.guessed_tokens, 0);
}

// The output leaves the text of the prompt every now and then.
TEST(SchedulerGuessTest, KeepsTheDrawBehindAWrongGuess) {
  Simulation run(Config());
  std::vector<int32_t> text = Twice(Counting(600));
  for (size_t i = 620; i < text.size(); i += 23) text[i] = static_cast<int32_t>(50000 + i);
  run.starts[1] = 600;
  run.Start(run.Make(text, 600));
  run.ToEnd();
  const Usage& usage = run.end(1).usage;
  EXPECT_EQ(usage.completion_tokens, 600);
  EXPECT_GT(usage.guessed_tokens - usage.accepted_guesses, 20);
  EXPECT_LT(run.num_steps, 350);
}

// The end lies among guesses that are right, and the text goes on behind it.
TEST(SchedulerGuessTest, KeepsNothingBehindAnEnd) {
  for (int32_t length = 60; length < 70; ++length) {
    const auto ends = [&](std::vector<int32_t> text, FinishReason reason, int32_t output,
                          const std::function<void(Request&)>& change) {
      Simulation run(Config());
      text.insert(text.end(), {901, 902, 903, 904, 905, 906, 907, 908, 909});
      const RequestId id = run.Repeat(text, change);
      run.ToEnd();
      EXPECT_EQ(run.end(id).reason, reason) << length;
      EXPECT_EQ(run.end(id).usage.completion_tokens, output) << length;
      EXPECT_EQ(run.events.tokens.size(), static_cast<size_t>(output)) << length;
      EXPECT_GT(run.end(id).usage.accepted_guesses, 30);
      if (reason == FinishReason::kEos || reason == FinishReason::kStopToken) {
        EXPECT_EQ(run.end(id).stop_token, text[static_cast<size_t>(output) - 1]);
      }
      return 0;
    };
    std::vector<int32_t> text = Counting(length);
    ends(text, FinishReason::kMaxTokens, length,
         [&](Request& request) { request.sampling.max_tokens = length; });
    ends(text, FinishReason::kStopToken, length,
         [&](Request& request) { request.sampling.stop_token_ids = {text.back()}; });
    std::vector<int32_t> looped = text;
    for (int32_t i = 0; i < 4; ++i) looped.insert(looped.end(), {71, 72, 73});
    ends(looped, FinishReason::kLoop, length + 9, [](Request& request) {
      request.sampling.loop_min_repeats = 3;
      request.sampling.loop_max_tokens = 5;
    });
    std::vector<int32_t> stops = text;
    stops.push_back(kEos);
    ends(stops, FinishReason::kEos, length + 1, [](Request&) {});
    // Not before min_tokens.
    stops[40] = kEos;
    ends(stops, FinishReason::kEos, length + 1,
         [](Request& request) { request.sampling.min_tokens = 50; });
  }
}

TEST(SchedulerGuessTest, EndsWhereTheContextIsFull) {
  for (int32_t room = 50; room < 60; ++room) {
    SchedulerConfig config = Config();
    config.max_model_len = 100 + room;
    Simulation run(config);
    const RequestId id = run.Repeat(Counting(100));
    run.ToEnd();
    EXPECT_EQ(run.end(id).reason, FinishReason::kContextLimit);
    EXPECT_EQ(run.end(id).usage.completion_tokens, room);
    EXPECT_GT(run.end(id).usage.accepted_guesses, 30);
  }
}

// Rows that guess run in the same steps, one at a time.
TEST(SchedulerGuessTest, AllRowsGuessTogether) {
  Simulation run(Config());
  for (int32_t i = 0; i < 4; ++i) run.Repeat(Counting(300 + i, 1000 + 5000 * i));
  run.ToEnd();
  // 31 guesses and 4 rows: seven each.
  EXPECT_EQ(run.most_draws, 8);
  EXPECT_LT(run.num_steps, 80);
}

// Beside a row that does not guess, a guessing row is in every second step: it pays all the same,
// and the other row has a token in each step.
TEST(SchedulerGuessTest, DoesNotDelayARowThatDoesNotGuess) {
  Simulation run(Config());
  run.starts[1] = 10;
  run.Start(run.Make(Counting(410), 10));
  run.Repeat(Counting(390, 5000));
  run.ToEnd();
  EXPECT_EQ(run.num_steps, 400);
  EXPECT_EQ(run.end(1).usage.completion_tokens, 400);
  EXPECT_GT(run.end(2).usage.accepted_guesses, 300);
}

TEST(SchedulerGuessTest, ManyRowsTurnGuessesOff) {
  SchedulerConfig config = Config();
  config.step_guesses = 7;
  config.max_num_batched_tokens = 4096;  // all prompts in one step
  Simulation run(config);
  for (int32_t i = 0; i < 8; ++i) run.Repeat(Counting(200, 1000 + 5000 * i));
  run.ToEnd();
  EXPECT_EQ(run.most_draws, 1);
  EXPECT_EQ(run.num_steps, 200);
}

TEST(SchedulerGuessTest, ScoresAndServersWithoutGuessesHaveOneDrawAStep) {
  Simulation run(Config());
  run.Repeat(Counting(200), [](Request& request) { request.reading.num_top = 3; });
  run.Repeat(Counting(200), [](Request& request) { request.max_guesses = 0; });
  run.ToEnd();
  EXPECT_EQ(run.most_draws, 1);
  SchedulerConfig config = Config();
  config.step_guesses = 0;
  Simulation without(config);
  without.Repeat(Counting(200));
  without.ToEnd();
  EXPECT_EQ(without.most_draws, 1);
}

// In a pool that is just large enough, guesses take only what no row needs.
TEST(SchedulerGuessTest, GuessesLessWithoutBlocks) {
  SchedulerConfig config = Config();
  config.block_size = 4;
  config.growth_horizon = 0;
  config.num_blocks = 1 + 2 * 200 / 4 - 3;  // three blocks less than both rows want at their ends
  Simulation run(config);
  run.Repeat(Counting(100));
  run.Repeat(Counting(100, 5000));
  run.ToEnd();
  EXPECT_GT(run.end(1).usage.accepted_guesses, 60);
  EXPECT_EQ(run.end(2).usage.completion_tokens, 100);
}

}  // namespace
}  // namespace quire
