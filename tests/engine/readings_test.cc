// Scores of prompts and of drawn tokens, and pooled hidden states, through the whole engine:
// against the logits of transformers, in any chunks, beside neighbours, on one rank and on two.
// Covers engine/worker/rank/step_readings.cc
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/engine_workers.h"
#include "tests/engine/model/model_runner.h"

namespace quire {
namespace {

struct Taken {
  std::map<int32_t, std::vector<uint32_t>> prompt;  // a score by the token's position
  std::vector<std::vector<uint32_t>> drawn;
  std::vector<double> sum;
  int32_t summed = 0;
  std::vector<int32_t> tokens;
  Usage usage;
};

class ReadingSink : public OutputSink {
 public:
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent> readings,
                  std::span<const uint32_t> words) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, cookie, reading] : readings) {
      Take(reading, words.subspan(reading.begin, reading.words), taken_[id]);
    }
  }
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) taken_[event.id].tokens.push_back(event.token);
    for (const FinishEvent& event : finishes) {
      EXPECT_EQ(event.reason, FinishReason::kMaxTokens);
      taken_[event.id].usage = event.usage;
    }
    ended_ += finishes.size();
    changed_.notify_all();
  }
  std::map<RequestId, Taken> Await(size_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ends; });
    return taken_;
  }

 private:
  static void Take(const StepReading& reading, std::span<const uint32_t> words, Taken& taken) {
    if (reading.kind == StepReading::Kind::kPooled) {
      if (reading.position == 0) taken.sum.clear(), taken.summed = 0;
      taken.sum.resize(words.size());
      for (size_t i = 0; i < words.size(); ++i) taken.sum[i] += std::bit_cast<float>(words[i]);
      taken.summed += reading.count;
      return;
    }
    const auto each = static_cast<size_t>(ScoreWords(reading.num_top, reading.num_ids));
    for (int32_t i = 0; i < reading.count; ++i) {
      const auto one = words.subspan(static_cast<size_t>(i) * each, each);
      const std::vector<uint32_t> score(one.begin(), one.end());
      if (reading.kind == StepReading::Kind::kDrawn) {
        taken.drawn.push_back(score);
      } else {
        taken.prompt[reading.position + i] = score;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Taken> taken_;
  size_t ended_ = 0;
};

std::unique_ptr<Request> MakeRequest(std::vector<int32_t> prompt, const ReadingParams& reading,
                                     int32_t max_tokens = 1) {
  auto request = std::make_unique<Request>();
  request->prompt = std::move(prompt);
  request->sampling.max_tokens = max_tokens;
  request->sampling.row.temperature = 0;
  request->reading = reading;
  request->arrival_ns = SteadyNowNs();
  return request;
}

std::map<RequestId, Taken> RunAll(EngineConfig config,
                                  std::vector<std::unique_ptr<Request>> requests) {
  config.device = "cpu";
  config.cpu_threads = 2;
  absl::StatusOr<EngineSetup> setup = PlanEngine(config);
  EXPECT_TRUE(setup.ok()) << setup.status();
  WorkerReport report;
  absl::StatusOr<std::unique_ptr<Transport>> transport = StartThreads(*setup, &report);
  EXPECT_TRUE(transport.ok()) << transport.status();
  ReadingSink sink;
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &sink, setup->graph_sizes);
  RequestId id = 0;
  for (std::unique_ptr<Request>& request : requests) {
    request->id = ++id;
    const absl::Status status = engine.Submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status;
  }
  return sink.Await(requests.size());
}

EngineConfig Config(const std::string& name, int32_t chunk, int32_t ranks) {
  EngineConfig config;
  config.model = testing::ModelDir(name);
  config.max_num_seqs = 5;  // so that a slice of a prompt has few rows
  config.max_model_len = 512;
  config.max_num_batched_tokens = chunk;
  config.tensor_parallel_size = ranks;
  return config;
}

// A score of `token` with 20 top tokens, against logits of transformers. Their distance is a
// rounding of sums; an order that it may change is not compared.
void ExpectScore(const std::vector<uint32_t>& score, int32_t token, const float* logits,
                 int32_t vocab) {
  constexpr double kBound = 2e-4;
  const double top = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int32_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - top);
  const double log_sum = top + std::log(sum);
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
  ASSERT_EQ(score.size(), static_cast<size_t>(ScoreWords(kMaxTopTokens, 0)));
  EXPECT_EQ(score[0], static_cast<uint32_t>(token));
  EXPECT_NEAR(std::bit_cast<float>(score[1]), logits[token] - log_sum, kBound);
  int32_t above = 0, near = 0;
  for (int32_t i = 0; i < vocab; ++i) {
    above += logits[i] > logits[token] + kBound;
    near += std::fabs(logits[i] - logits[token]) <= kBound;
  }
  EXPECT_GT(static_cast<int32_t>(score[2]), above);
  EXPECT_LE(static_cast<int32_t>(score[2]), above + near);
  for (int32_t i = 0; i < kMaxTopTokens; ++i) {
    const auto id = static_cast<int32_t>(score[3 + 2 * i]);
    ASSERT_TRUE(0 <= id && id < vocab);
    EXPECT_NEAR(std::bit_cast<float>(score[4 + 2 * i]), logits[order[i]] - log_sum, kBound);
    EXPECT_NEAR(logits[id], logits[order[i]], kBound) << "place " << i;
  }
}

// The prompt, and all of its greedy continuation, as one prompt to be scored; and the prompt alone,
// continued, with scores of the drawn tokens.
void CompareWithTransformers(const std::string& name, int32_t chunk, int32_t ranks) {
  SCOPED_TRACE(name + ", chunks of " + std::to_string(chunk) + ", ranks " + std::to_string(ranks));
  const testing::Expected expected = testing::ReadExpected(name);
  ReadingParams of_prompt, of_output;
  of_prompt.prompt_top = of_output.num_top = kMaxTopTokens;
  std::vector<std::unique_ptr<Request>> requests;
  for (const auto& prompt : expected.prompts) {
    std::vector<int32_t> known = prompt.tokens;
    known.insert(known.end(), prompt.greedy.begin(), prompt.greedy.end());
    requests.push_back(MakeRequest(known, of_prompt));
    requests.push_back(
        MakeRequest(prompt.tokens, of_output, static_cast<int32_t>(prompt.greedy.size())));
  }
  const auto taken = RunAll(Config(name, chunk, ranks), std::move(requests));
  RequestId id = 0;
  for (const auto& prompt : expected.prompts) {
    const Taken& scored = taken.at(++id);
    const Taken& generated = taken.at(++id);
    const auto length = static_cast<int32_t>(prompt.tokens.size());
    EXPECT_EQ(scored.prompt.size(), prompt.tokens.size() + prompt.greedy.size() - 1);
    EXPECT_EQ(scored.usage.cached_tokens, 0);
    EXPECT_EQ(generated.tokens, prompt.greedy);
    ASSERT_EQ(generated.drawn.size(), prompt.greedy.size());
    for (size_t i = 0; i < prompt.positions.size(); ++i) {
      const int32_t at = prompt.positions[i];
      const float* logits = prompt.logits.data() + i * static_cast<size_t>(expected.vocab_size);
      const int32_t next = at + 1 < length ? prompt.tokens[static_cast<size_t>(at + 1)]
                                           : prompt.greedy[static_cast<size_t>(at + 1 - length)];
      ExpectScore(scored.prompt.at(at + 1), next, logits, expected.vocab_size);
      if (at + 1 < length) continue;
      const auto& drawn = generated.drawn[static_cast<size_t>(at + 1 - length)];
      ExpectScore(drawn, next, logits, expected.vocab_size);
      EXPECT_EQ(drawn[2], 1u);  // greedy takes the first
    }
  }
}

TEST(ReadingsTest, ScoresEqualTransformers) {
  CompareWithTransformers("llama", 512, 1);
  CompareWithTransformers("llama", 17, 1);
  CompareWithTransformers("llama", 64, 2);
  CompareWithTransformers("qwen3", 40, 1);
}

// The mean over a prompt is the mean of the last hidden states of its beginnings, because attention
// is causal.
TEST(ReadingsTest, MeansAreOfTheLastHiddenStatesOfBeginnings) {
  const auto prompt = testing::ReadExpected("llama").prompts[1].tokens;
  for (const int32_t chunk : {512, 6}) {
    ReadingParams mean, last;
    mean.pooling = Pooling::kMean;
    last.pooling = Pooling::kLast;
    std::vector<std::unique_ptr<Request>> requests;
    requests.push_back(MakeRequest(prompt, mean));
    for (size_t length = 1; length <= prompt.size(); ++length) {
      requests.push_back(MakeRequest({prompt.begin(), prompt.begin() + length}, last));
    }
    const auto taken = RunAll(Config("llama", chunk, 1), std::move(requests));
    const Taken& of_all = taken.at(1);
    ASSERT_EQ(of_all.summed, static_cast<int32_t>(prompt.size()));
    ASSERT_EQ(of_all.sum.size(), 64u);  // hidden_size
    for (size_t h = 0; h < of_all.sum.size(); ++h) {
      double sum = 0;
      for (size_t length = 1; length <= prompt.size(); ++length) {
        EXPECT_EQ(taken.at(length + 1).summed, 1);
        sum += taken.at(length + 1).sum[h];
      }
      EXPECT_NEAR(of_all.sum[h], sum, 1e-4);
    }
  }
}

}  // namespace
}  // namespace quire
