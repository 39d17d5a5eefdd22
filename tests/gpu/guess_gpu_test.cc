// Guesses on a GPU with the demo model: several draws of a row are the greedy tokens of
// transformers, each step is the same on every run, and the engine gives the same tokens with
// guesses and without where the margins are clear. Runs from the repository's root.
#include <condition_variable>
#include <mutex>

#include "engine/base/json.h"
#include "engine/engine.h"
#include "engine/worker/in_process_transport.h"
#include "tests/gpu/demo_worker.h"

namespace quire::gpu {
namespace {

// One row at a time: a prompt, then steps that verify the tokens of a text.
class VerifiedText {
 public:
  VerifiedText() {
    CudaWorkerReport report;
    // A step has room for the longest prompt.
    worker_ = MakeDemoWorker({.max_num_batched_tokens = 4096, .speculate = 16}, &report);
  }

  // The draws at the positions behind `prompt`, `guesses` + 1 a step; the text is its own guess.
  std::vector<int32_t> Run(const std::vector<int32_t>& prompt, const std::vector<int32_t>& text,
                           const SampleRow& sampling, int32_t guesses) {
    std::vector<int32_t> known = prompt, drawn;
    known.insert(known.end(), text.begin(), text.end());
    const auto num_prompt = static_cast<int32_t>(prompt.size());
    plan_.Clear();
    plan_.new_rows = {{.row = 0, .num_prompt = num_prompt, .sampling = sampling}};
    for (int32_t i = 0; i * kDemoBlockSize < static_cast<int32_t>(known.size()); ++i) {
      plan_.block_adds.push_back({0, i, 1 + i});
    }
    Step(known, 0, num_prompt, 1, &drawn);
    // A step reads the last kept token and its guesses, and draws behind each of them.
    const auto end = static_cast<int32_t>(known.size()) - 1;
    for (int32_t start = num_prompt; start < end; start += guesses + 1) {
      plan_.Clear();
      const int32_t count = std::min(guesses + 1, end - start);
      Step(known, start, count, count, &drawn);
    }
    return drawn;
  }

 private:
  void Step(const std::vector<int32_t>& known, int32_t start, int32_t count, int32_t draws,
            std::vector<int32_t>* drawn) {
    plan_.step = ++step_;
    plan_.tokens.assign(known.begin() + start, known.begin() + start + count);
    plan_.token_runs = {{.row = 0, .start = start, .count = static_cast<uint32_t>(count)}};
    plan_.work = {{.row = 0, .start = start, .count = count, .sample = draws}};
    plan_.num_tokens = count;
    plan_.num_samples = draws;
    worker_->Run(plan_, result_);
    ASSERT_EQ(result_.samples.size(), static_cast<size_t>(draws));
    for (const SampledToken& sample : result_.samples) {
      EXPECT_FALSE(sample.result.nonfinite);
      drawn->push_back(sample.result.token);
    }
  }

  std::unique_ptr<Worker> worker_;
  StepPlan plan_;
  StepResult result_;
  uint64_t step_ = 0;
};

nlohmann::json Cases() { return (*ReadJsonFile("tests/testdata/demo_model/greedy.json"))["cases"]; }

// Every draw reads the reference's own tokens, so a close margin does not end the comparison.
TEST(GuessGpuTest, DrawsAtGuessedPositionsMatchTransformers) {
  VerifiedText verified;
  constexpr double kClose = 0.3;  // as in worker_gpu_test.cc
  int compared = 0;
  for (const nlohmann::json& item : Cases()) {
    const auto prompt = item.at("prompt_ids").get<std::vector<int32_t>>();
    const auto text = item.at("expected_ids").get<std::vector<int32_t>>();
    const auto margins = item.at("margins").get<std::vector<double>>();
    for (const int32_t guesses : {1, 3, 7, 16}) {  // of the decode kernel, and of the prefill one
      const auto drawn = verified.Run(prompt, text, {.temperature = 0}, guesses);
      ASSERT_EQ(drawn.size(), text.size());
      for (size_t t = 0; t < text.size(); ++t) {
        if (margins[t] < kClose) continue;
        ++compared;
        ASSERT_EQ(drawn[t], text[t]) << guesses << " guesses, token " << t;
      }
    }
  }
  EXPECT_GT(compared, 200);
  RecordProperty("compared_tokens", compared);
}

TEST(GuessGpuTest, TheSameStepsDrawTheSameTokens) {
  VerifiedText verified;
  const nlohmann::json item = Cases()[0];
  const auto prompt = item.at("prompt_ids").get<std::vector<int32_t>>();
  const auto text = item.at("expected_ids").get<std::vector<int32_t>>();
  for (uint64_t id = 0; id < 16; ++id) {
    const SampleRow sampling = MixedSampling(id, id + 1);
    const auto drawn = verified.Run(prompt, text, sampling, 7);
    EXPECT_EQ(verified.Run(prompt, text, sampling, 7), drawn);
    EXPECT_EQ(VerifiedText().Run(prompt, text, sampling, 7), drawn);
  }
}

class CountingSink : public OutputSink {
 public:
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) tokens_[event.id].push_back(event.token);
    for (const FinishEvent& event : finishes) accepted_ += event.usage.accepted_guesses;
    ended_ += finishes.size();
    changed_.notify_all();
  }
  std::map<RequestId, std::vector<int32_t>> Await(size_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ends; });
    return tokens_;
  }
  int64_t accepted() const { return accepted_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<int32_t>> tokens_;
  size_t ended_ = 0;
  int64_t accepted_ = 0;
};

// A large bias makes every margin clear: each row repeats its own token, and ends by max_tokens.
TEST(GuessGpuTest, TheEngineGuessesWhatItWouldDraw) {
  constexpr RequestId kRequests = 12;
  const DemoSettings settings{.max_num_seqs = 8, .speculate = 8};
  const EngineSetup setup = DemoSetup(settings);
  CudaWorkerReport report;
  std::vector<std::unique_ptr<StepRunner>> workers;
  workers.push_back(MakeDemoWorker(settings, &report));
  CountingSink sink;
  Engine engine(
      setup.scheduler, setup.limits,
      std::make_unique<InProcessTransport>(std::move(workers), setup.config.steps_in_flight), &sink,
      setup.graph_sizes);
  for (RequestId id = 1; id <= kRequests; ++id) {
    auto request = MakeRequest(id, 100, 10);
    request->sampling.max_tokens = 200 + static_cast<int32_t>(id);
    request->sampling.logit_bias = {{static_cast<int32_t>(10 + id), 1000.0f}};
    request->max_guesses = id % 4 == 0 ? 0 : 8;
    ASSERT_TRUE(engine.Submit(std::move(request)).ok());
  }
  const auto tokens = sink.Await(kRequests);
  for (RequestId id = 1; id <= kRequests; ++id) {
    EXPECT_EQ(tokens.at(id), std::vector<int32_t>(200 + id, static_cast<int32_t>(10 + id)));
  }
  EXPECT_GT(sink.accepted(), 600);
  const EngineStats stats = engine.Stats();
  EXPECT_LT(stats.steps, kRequests * 200u);
}

}  // namespace
}  // namespace quire::gpu
