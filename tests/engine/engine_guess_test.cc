// Guesses on a real checkpoint: 100,000 tokens of greedy, random and penalised requests side by
// side, with guesses and without, have the same ids and log probabilities, to the last bit; also
// preempted, in chunks, on two ranks, and at their ends.
#include <bit>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/engine_workers.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprobs;  // their bits
  FinishReason reason = FinishReason::kNone;
  bool operator==(const Answer&) const = default;
};

class Answers : public OutputSink {
 public:
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) {
      answers_[event.id].tokens.push_back(event.token);
      answers_[event.id].logprobs.push_back(std::bit_cast<uint32_t>(event.logprob));
    }
    for (const FinishEvent& event : finishes) {
      answers_[event.id].reason = event.reason;
      usage.preemptions += event.usage.preemptions;
      usage.completion_tokens += event.usage.completion_tokens;
      usage.guessed_tokens += event.usage.guessed_tokens;
      usage.accepted_guesses += event.usage.accepted_guesses;
    }
    ended_ += finishes.size();
    changed_.notify_all();
  }
  std::map<RequestId, Answer> Await(size_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ends; });
    return answers_;
  }

  Usage usage;  // summed; read it once all have ended

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Answer> answers_;
  size_t ended_ = 0;
};

struct Case {
  RequestId requests = 0;
  int32_t max_tokens = 0;
  EngineConfig config;
  int32_t growth_horizon = 128;
};

// The tiny checkpoints have random weights: a bias on a few tokens makes their outputs repeat.
// About half of the requests are greedy, the others draw.
std::unique_ptr<Request> MakeRequest(RequestId id, const Case& c, int32_t vocab_size) {
  std::mt19937 random(static_cast<uint32_t>(id));
  const auto one_in = [&random](uint32_t n) { return random() % n == 0; };
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt.resize(1 + random() % 60);
  for (int32_t& token : request->prompt) token = static_cast<int32_t>(random() % vocab_size);
  SamplingParams& sampling = request->sampling;
  sampling.max_tokens = 1 + c.max_tokens / 2 + static_cast<int32_t>(random() % (c.max_tokens / 2));
  sampling.row.seed = random();
  sampling.row.temperature = one_in(2) ? 0.0f : 1.0f;
  sampling.row.top_k = one_in(4) ? 20 : 0;
  sampling.row.top_p = one_in(4) ? 0.95f : 1.0f;
  sampling.row.repetition_penalty = one_in(4) ? 1.05f : 1.0f;
  sampling.row.frequency_penalty = one_in(4) ? 0.01f : 0.0f;
  sampling.row.dry_multiplier = one_in(8) ? 0.01f : 0.0f;
  const auto usual = static_cast<int32_t>(random() % vocab_size);
  sampling.logit_bias = {{usual, std::array{6.0f, 8.0f, 10.0f}[random() % 3]}};
  if (one_in(3)) sampling.stop_token_ids = {static_cast<int32_t>(random() % vocab_size)};
  if (one_in(6)) sampling.bad_words = {usual, usual, ~((usual + 1) % vocab_size)};
  sampling.min_tokens = one_in(2) ? static_cast<int32_t>(random() % c.max_tokens / 2) : 0;
  if (one_in(8)) {
    sampling.loop_max_tokens = 3;
    sampling.loop_min_repeats = 60;
  }
  request->max_guesses = c.config.speculate;
  request->arrival_ns = SteadyNowNs();
  return request;
}

std::map<RequestId, Answer> Run(const Case& c, Usage* usage) {
  absl::StatusOr<EngineSetup> setup = PlanEngine(c.config);
  EXPECT_TRUE(setup.ok()) << setup.status();
  setup->scheduler.growth_horizon = c.growth_horizon;
  WorkerReport report;
  absl::StatusOr<std::unique_ptr<Transport>> transport = StartThreads(*setup, &report);
  EXPECT_TRUE(transport.ok()) << transport.status();
  Answers answers;
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &answers,
                setup->graph_sizes);
  for (RequestId id = 1; id <= c.requests; ++id) {
    const absl::Status status = engine.Submit(MakeRequest(id, c, setup->model.vocab_size));
    EXPECT_TRUE(status.ok()) << status;
  }
  std::map<RequestId, Answer> all = answers.Await(c.requests);
  *usage = answers.usage;
  return all;
}

EngineConfig Config() {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/tests/testdata/models/llama";
  config.device = "cpu";
  config.cpu_threads = 2;
  config.max_num_seqs = 4;
  config.max_model_len = 512;
  return config;
}

// With guesses as `change` makes them, and without, everything else as in the plain `c`.
Usage ExpectTheSame(const Case& c, const std::function<void(Case&)>& change) {
  Case guessing = c;
  guessing.config.speculate = 8;
  guessing.config.speculate_step_tokens = 24;
  change(guessing);
  Usage plain, usage;
  const std::map<RequestId, Answer> expected = Run(c, &plain);
  const std::map<RequestId, Answer> answers = Run(guessing, &usage);
  EXPECT_EQ(plain.guessed_tokens, 0);
  EXPECT_GT(usage.accepted_guesses, usage.completion_tokens / 10);
  EXPECT_GT(usage.guessed_tokens - usage.accepted_guesses, usage.completion_tokens / 1000);
  for (const auto& [id, answer] : expected) {
    EXPECT_TRUE(answers.at(id) == answer) << "request " << id;
    if (::testing::Test::HasFailure()) break;
  }
  std::map<FinishReason, int> reasons;
  for (const auto& [id, answer] : expected) ++reasons[answer.reason];
  for (const auto& [reason, count] : reasons) {
    ::testing::Test::RecordProperty(Name(reason), count);
    std::printf("%s: %d, ", Name(reason), count);
  }
  std::printf("%d tokens, %d guessed, %d right, %d preemptions\n", usage.completion_tokens,
              usage.guessed_tokens, usage.accepted_guesses, usage.preemptions);
  return usage;
}

TEST(EngineGuessTest, ManyTokensAreTheSameWithGuessesAndWithout) {
  const Usage usage =
      ExpectTheSame({.requests = 420, .max_tokens = 440, .config = Config()}, [](const Case&) {});
  EXPECT_GT(usage.completion_tokens, 100'000);
}

TEST(EngineGuessTest, TokensSurvivePreemptionAndChunks) {
  const Usage usage =
      ExpectTheSame({.requests = 40, .max_tokens = 300, .config = Config()}, [](Case& c) {
        c.config.max_num_batched_tokens = 11;
        c.config.num_blocks_override = 44;
        c.growth_horizon = 0;
      });
  EXPECT_GT(usage.preemptions, 0);
}

TEST(EngineGuessTest, RanksShareTheDrawsOfARow) {
  Case c{.requests = 20, .max_tokens = 300, .config = Config()};
  c.config.tensor_parallel_size = 2;
  ExpectTheSame(c, [](const Case&) {});
}

}  // namespace
}  // namespace quire
