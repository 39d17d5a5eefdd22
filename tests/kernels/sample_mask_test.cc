// Draws under a mask: the token is the one that the other tokens at -infinity would give, its
// probability is the exact one among the masked tokens, and its log probability is that of the raw
// row. Seeds are fixed, so every run is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/futex.h"
#include "tests/kernels/cases.h"

namespace quire {
namespace {

std::vector<SampleResult> Draw(Backend& backend, const std::vector<float>& row,
                               const std::vector<SampleJob>& jobs) {
  const auto vocab = static_cast<int64_t>(row.size());
  Array logits(DType::kF32, {static_cast<int64_t>(jobs.size()), vocab});
  for (size_t r = 0; r < jobs.size(); ++r) {
    std::memcpy(logits.floats() + static_cast<int64_t>(r) * vocab, row.data(),
                row.size() * sizeof(float));
  }
  std::vector<SampleResult> results(jobs.size());
  backend.Sample({.logits = logits.view(), .jobs = jobs.data(), .results = results.data()});
  return results;
}

bool Holds(const std::vector<uint32_t>& mask, size_t token) {
  return (mask[token / 32] >> (token % 32) & 1) != 0;
}

// About one token of `part` is in the mask, the first one always.
std::vector<uint32_t> RandomMask(Random& random, int64_t vocab, uint64_t part) {
  std::vector<uint32_t> mask(static_cast<size_t>(MaskWords(vocab)), 0);
  for (int64_t t = 0; t < vocab; ++t) {
    if (t == 0 || random.Below(part) == 0) mask[static_cast<size_t>(t / 32)] |= 1u << (t % 32);
  }
  return mask;
}

// Log of the sum of the exponentials, in double.
double LogSum(const std::vector<double>& logits) {
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  return std::log(sum);
}

TEST(SampleMaskTest, FrequenciesFollowTheExactProbabilities) {
  constexpr int kDraws = 20000;
  Random random(3);
  const auto backend = MakeBackend({cpu::BestIsa(), 1});
  for (const float temperature : {0.6f, 1.0f, 1.7f}) {
    std::vector<float> row(75);
    for (float& l : row) l = static_cast<float>(random.Normal());
    const std::vector<uint32_t> mask = RandomMask(random, 75, 6);
    std::vector<double> scaled;
    for (size_t t = 0; t < row.size(); ++t) {
      if (Holds(mask, t)) scaled.push_back(double{row[t]} / temperature);
    }
    const double log_sum = LogSum(scaled);
    std::vector<SampleJob> jobs(kDraws);
    for (int n = 0; n < kDraws; ++n) {
      jobs[n].params = {.temperature = temperature, .seed = 77 * static_cast<uint64_t>(n) + 5};
      jobs[n].mask = mask.data();
    }
    std::vector<int64_t> count(row.size(), 0);
    for (const SampleResult& r : Draw(*backend, row, jobs)) ++count[static_cast<size_t>(r.token)];
    double chi2 = 0;
    int cells = 0;
    for (size_t t = 0; t < row.size(); ++t) {
      if (!Holds(mask, t)) {
        ASSERT_EQ(count[t], 0) << t;
        continue;
      }
      const double expected = kDraws * std::exp(double{row[t]} / temperature - log_sum);
      const double off = static_cast<double>(count[t]) - expected;
      chi2 += off * off / expected;
      ++cells;
    }
    // Mean df, variance 2 df; five standard deviations.
    EXPECT_GT(cells, 5);
    EXPECT_LE(chi2, cells - 1 + 5 * std::sqrt(2.0 * (cells - 1)));
  }
}

TEST(SampleMaskTest, TheOtherTokensAreAsIfTheirLogitsWereMinusInfinity) {
  Random random(4);
  const SampleRow settings[] = {
      {.temperature = 0},
      {.temperature = 1},
      {.temperature = 0.8f, .top_k = 3, .top_p = 0.9f},
      {.temperature = 1.2f, .min_p = 0.1f, .top_n_sigma = 1.5f},
      {.temperature = 1, .typical_p = 0.7f, .xtc_probability = 1, .xtc_threshold = 0.05f},
      {.temperature = 1, .dynatemp_range = 0.5f},
  };
  for (const int64_t vocab : {1, 31, 33, 64, 1000, 4099}) {
    std::vector<float> row(static_cast<size_t>(vocab));
    for (float& l : row) l = static_cast<float>(random.Normal());
    const std::vector<double> raw(row.begin(), row.end());
    for (const uint64_t part : {2, 20, 1000}) {
      const std::vector<uint32_t> mask = RandomMask(random, vocab, part);
      std::vector<float> holes = row;
      for (size_t t = 0; t < row.size(); ++t) {
        if (!Holds(mask, t)) holes[t] = -INFINITY;
      }
      for (const SampleRow& setting : settings) {
        SampleJob job{.params = setting};
        job.params.seed = random.Next();
        SampleJob masked = job;
        masked.mask = mask.data();
        OnEveryMachine([&](Backend& backend, const Machine& machine) {
          const SampleResult got = Draw(backend, row, {masked})[0];
          ASSERT_EQ(got.nonfinite, 0);
          ASSERT_EQ(got.token, Draw(backend, holes, {job})[0].token) << machine.name();
          ASSERT_TRUE(Holds(mask, static_cast<size_t>(got.token)));
          ASSERT_NEAR(got.logprob, raw[static_cast<size_t>(got.token)] - LogSum(raw), 1e-4);
        });
      }
    }
  }
}

TEST(SampleMaskTest, StandsBeforeBiasesAndNeverYieldsToAllowedTokens) {
  const auto backend = MakeBackend({cpu::BestIsa(), 1});
  const std::vector<float> row = {1, 5, 4, 3};
  const std::vector<uint32_t> mask = {0b1101};
  const LogitBias bias = {1, 100.0f};
  const std::vector<int32_t> allowed = {1, 3};
  const std::vector<int32_t> banned = {3};
  SampleJob job{.params = {.temperature = 0}, .bias = &bias, .num_bias = 1};
  job.mask = mask.data();
  EXPECT_EQ(Draw(*backend, row, {job})[0].token, 2);
  job.allowed = allowed.data();
  job.num_allowed = 2;
  EXPECT_EQ(Draw(*backend, row, {job})[0].token, 3);
  job.banned = banned.data();
  job.num_banned = 1;
  EXPECT_EQ(Draw(*backend, row, {job})[0].nonfinite, SampleResult::kNoToken);
  std::vector<float> unsound = row;
  unsound[0] = NAN;
  EXPECT_EQ(Draw(*backend, unsound, {job})[0].nonfinite, SampleResult::kUnsound);
}

TEST(SampleMaskTest, DrawsWithAMaskThatComesWhileItWaits) {
  const std::vector<float> row = {1, 5, 4, 3};
  for (const int threads : {1, 3}) {
    const auto backend = MakeBackend({cpu::BestIsa(), threads});
    std::vector<uint32_t> masks = {0, 0, 0}, words = {kMaskAwaited, kMaskAwaited, kMaskAwaited};
    std::vector<int32_t> drawn = {-1, -1, -1, -1};
    std::vector<SampleJob> jobs(4, {.params = {.temperature = 0}, .num_known = 7});
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].drawn = &drawn[i];
    for (size_t i = 0; i < masks.size(); ++i) {
      jobs[i].mask = &masks[i];
      jobs[i].mask_for = &words[i];
    }
    std::thread host([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      masks[0] = 0b1000;
      const uint32_t answers[] = {7, kMaskWithheld, 8};
      for (size_t i = 0; i < words.size(); ++i) {
        auto& word = *reinterpret_cast<std::atomic<uint32_t>*>(&words[i]);
        if (word.exchange(answers[i]) == kMaskSleeping) FutexWake(word);
      }
    });
    const std::vector<SampleResult> got = Draw(*backend, row, jobs);
    host.join();
    EXPECT_EQ(got[0].nonfinite, 0);
    EXPECT_EQ(got[0].token, 3);
    EXPECT_EQ(got[1].nonfinite, SampleResult::kNoMask) << "withheld";
    EXPECT_EQ(got[2].nonfinite, SampleResult::kNoMask) << "of another position";
    EXPECT_EQ(got[3].token, 1) << "without a mask";
    EXPECT_EQ(drawn, (std::vector<int32_t>{3, 0, 0, 1}));
  }
}

TEST(SampleMaskTest, GivesUpOnAMaskThatNeverComes) {
  const auto backend = MakeBackend({cpu::BestIsa(), 1});
  const uint32_t mask = 0b1111;
  uint32_t word = kMaskAwaited;
  SampleJob job{.params = {.temperature = 0}, .num_known = 7};
  job.mask = &mask;
  job.mask_for = &word;
  EXPECT_EQ(Draw(*backend, {1, 5, 4, 3}, {job})[0].nonfinite, SampleResult::kNoMask);
}

}  // namespace
}  // namespace quire
