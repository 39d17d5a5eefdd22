// Sample against a double-precision reference of sampling.h: the modified logits, the kept tokens,
// the draw, and the frequencies of many draws against exact probabilities. Seeds are fixed, so
// every run is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "kernels/sampling_math.h"
#include "tests/kernels/cases.h"

namespace quire {
namespace {

std::vector<SampleResult> SampleRows(Backend& backend, const std::vector<std::vector<float>>& rows,
                                     const std::vector<SampleJob>& jobs) {
  const int64_t vocab = static_cast<int64_t>(rows[0].size());
  Array logits(DType::kF32, {static_cast<int64_t>(rows.size()), vocab});
  for (size_t r = 0; r < rows.size(); ++r) {
    std::memcpy(logits.floats() + r * vocab, rows[r].data(), vocab * sizeof(float));
  }
  std::vector<SampleResult> results(rows.size());
  backend.Sample({.logits = logits.view(), .jobs = jobs.data(), .results = results.data()});
  return results;
}

SampleResult SampleOne(Backend& backend, const std::vector<float>& row, const SampleJob& job) {
  return SampleRows(backend, {row}, {job})[0];
}

Backend& AnyBackend() {
  static const std::unique_ptr<Backend> backend = MakeBackend({cpu::BestIsa(), 1});
  return *backend;
}

SampleJob Job(const SampleRow& params, int32_t position = 0) {
  static const std::vector<int32_t> tokens(100000, 0);
  return SampleJob{
      .params = params, .tokens = tokens.data(), .num_prompt = position, .num_known = position};
}

std::vector<float> RandomLogits(Random& random, int64_t vocab, double scale) {
  std::vector<float> logits(vocab);
  for (float& l : logits) l = static_cast<float>(random.Normal() * scale);
  return logits;
}

// Logits after bias, bans and penalties, in double.
std::vector<double> Modified(const std::vector<float>& raw, const SampleJob& job) {
  std::vector<double> logits(raw.begin(), raw.end());
  for (int i = 0; i < job.num_bias; ++i) logits[job.bias[i].token] += double{job.bias[i].bias};
  for (int i = 0; i < job.num_banned; ++i) logits[job.banned[i]] = -INFINITY;
  std::map<int32_t, int> seen;
  for (int32_t i = 0; i < job.num_known; ++i) seen[job.tokens[i]] += i >= job.num_prompt ? 1 : 0;
  for (const auto& [token, count] : seen) {
    double& l = logits[token];
    l = l > 0 ? l / job.params.repetition_penalty : l * job.params.repetition_penalty;
    l -= double{job.params.frequency_penalty} * count;
    if (count > 0) l -= job.params.presence_penalty;
  }
  return logits;
}

double Deviation(const std::vector<double>& logits) {
  const auto n = static_cast<double>(logits.size());
  const double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / n;
  double squares = 0;
  for (double l : logits) squares += (l - mean) * (l - mean);
  return std::sqrt(squares / n);
}

// Keeps the weights whose surprise is nearest to the entropy, until they hold this share.
void KeepTypical(double share, std::vector<double>& p) {
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  double entropy = 0;
  for (double x : p) entropy -= x > 0 ? x / total * std::log(x / total) : 0.0;
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) order.emplace_back(std::abs(-std::log(p[i] / total) - entropy), i);
  }
  std::sort(order.begin(), order.end());
  double sum = 0;
  for (const auto& [surprise, i] : order) {
    const double weight = p[i];
    if (sum >= share * total) p[i] = 0.0;
    sum += weight;
  }
}

// Of the weights with at least this share, keeps the smallest; and all below.
void DropTopChoices(double share, std::vector<double>& p) {
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  double least = INFINITY;
  for (double x : p) least = x >= share * total ? std::min(least, x) : least;
  for (double& x : p) x = x > least ? 0.0 : x;
}

// Exact probabilities of the draw, zero where a filter drops the token.
std::vector<double> Probabilities(const std::vector<double>& logits, const SampleRow& row) {
  const double top = *std::max_element(logits.begin(), logits.end());
  const double far = row.top_n_sigma > 0 ? row.top_n_sigma * Deviation(logits) : INFINITY;
  std::vector<double> p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = top - logits[i] <= far ? std::exp((logits[i] - top) / row.temperature) : 0.0;
  }
  std::vector<double> sorted = p;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (row.top_k > 0 && row.top_k < static_cast<int64_t>(p.size())) {
    for (double& x : p) x = x >= sorted[row.top_k - 1] ? x : 0.0;
  }
  if (row.top_p < 1.0f) {
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    // The smallest probability with less than top_p of the mass strictly above it.
    double sum = 0, above = 0, edge = sorted[0];
    for (double x : sorted) {
      if (x != edge) above = sum;
      if (above >= double{row.top_p} * total) break;
      edge = x;
      sum += x;
    }
    for (double& x : p) x = x >= edge ? x : 0.0;
  }
  for (double& x : p) x = x >= double{row.min_p} ? x : 0.0;  // the largest is 1
  if (row.typical_p < 1.0f) KeepTypical(row.typical_p, p);
  if (row.xtc_probability == 1.0f) DropTopChoices(row.xtc_threshold, p);
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// The Gumbel-max draw in double. `margin` is the lead of the winner.
int32_t ReferenceDraw(const std::vector<double>& probabilities, uint64_t seed, uint32_t position,
                      double* margin) {
  double best = -INFINITY, second = -INFINITY;
  int32_t token = -1;
  for (uint32_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0.0) continue;
    const Philox4 counter = {{i / 64 * 16 + i % 16, position, 0, 0}};
    const uint32_t word = Philox4x32(seed, counter).word[i / 16 % 4];
    const double score =
        std::log(probabilities[i]) - std::log(-std::log1p(-(word + 0.5) * 0x1p-32));
    if (score > best) {
      second = best;
      best = score;
      token = static_cast<int32_t>(i);
    } else {
      second = std::max(second, score);
    }
  }
  *margin = best - second;
  return token;
}

double RawLogprob(const std::vector<float>& raw, int32_t token) {
  const double top = *std::max_element(raw.begin(), raw.end());
  double sum = 0;
  for (float l : raw) sum += std::exp(l - top);
  return raw[token] - top - std::log(sum);
}

TEST(SamplingMathTest, PhiloxGivesThePublishedVectors) {
  const auto words = [](uint64_t key, Philox4 counter) {
    const Philox4 r = Philox4x32(key, counter);
    return std::vector<uint32_t>(r.word, r.word + 4);
  };
  using V = std::vector<uint32_t>;
  EXPECT_EQ(words(0, {{0, 0, 0, 0}}), (V{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~uint64_t{0}, {{~0u, ~0u, ~0u, ~0u}}),
            (V{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x299f31d0a4093822, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}),
            (V{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SamplingMathTest, ExpAndLogAreWithinTwoRoundingsOfTheTruth) {
  for (double x = -86.9; x < 88.0; x += 0.00137) {
    const float f = static_cast<float>(x);
    const double truth = std::exp(double{f});
    ASSERT_NEAR(ExactExp(f), truth, 4 * kRounding * truth) << f;
  }
  EXPECT_EQ(ExactExp(0.0f), 1.0f);
  EXPECT_EQ(ExactExp(-INFINITY), 0.0f);
  for (double x = 1e-10; x < 1e3; x *= 1.00031) {
    const float f = static_cast<float>(x);
    const double truth = std::log(double{f});
    ASSERT_NEAR(ExactLog(f), truth, 4 * kRounding * std::abs(truth) + 1e-12) << f;
  }
}

TEST(SamplingMathTest, TheExponentialVariateIsAccurateAtBothEnds) {
  for (uint32_t x : {0u, 1u, 77u, 1u << 20, 0x4afb0000u, 0x7fffffffu, 0x80000000u, 0xc0000000u,
                     0xfffffff0u, 0xffffffffu}) {
    const double truth = -std::log1p(-(x + 0.5) * 0x1p-32);
    EXPECT_NEAR(ExactExponential(x), truth, 4 * kRounding * truth) << x;
  }
}

TEST(SampleTest, GreedyTakesTheLowestOfEqualLogits) {
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    for (int64_t vocab : {1, 5, 64, 130, 2048}) {
      std::vector<float> row(vocab, -3.0f);
      EXPECT_EQ(SampleOne(backend, row, Job({.temperature = 0})).token, 0);
      row[vocab / 2] = row[vocab - 1] = 2.0f;
      const SampleResult r = SampleOne(backend, row, Job({.temperature = 0}));
      EXPECT_EQ(r.token, vocab / 2);
      EXPECT_EQ(r.nonfinite, 0);
      EXPECT_NEAR(r.logprob, RawLogprob(row, r.token), 1e-5);
    }
  });
}

TEST(SampleTest, FlagsNonfiniteRows) {
  const std::vector<float> good = {1.0f, -INFINITY, 0.5f, 2.0f, 0.0f};
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    for (float temperature : {0.0f, 1.0f}) {
      const SampleJob job = Job({.temperature = temperature});
      EXPECT_EQ(SampleOne(backend, good, job).nonfinite, 0);
      for (size_t at = 0; at < good.size(); ++at) {
        for (float bad : {NAN, -NAN, INFINITY}) {
          std::vector<float> row = good;
          row[at] = bad;
          EXPECT_EQ(SampleOne(backend, row, job).nonfinite, 1);
        }
      }
      EXPECT_EQ(SampleOne(backend, std::vector<float>(70, -INFINITY), job).nonfinite, 1);
      SampleJob all_banned = job;
      const std::vector<int32_t> banned = {0, 1, 2, 3, 4};
      all_banned.banned = banned.data();
      all_banned.num_banned = 5;
      EXPECT_EQ(SampleOne(backend, good, all_banned).nonfinite, SampleResult::kNoToken);
    }
  });
}

TEST(SampleTest, ModifiesLogitsInTheStatedOrder) {
  Random random(11);
  int compared = 0;
  for (int round = 0; round < 400; ++round) {
    const int64_t vocab = 5 + random.Below(40);
    const std::vector<float> row = RandomLogits(random, vocab, 2.0);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 30; ++i) tokens.push_back(static_cast<int32_t>(random.Below(vocab)));
    const std::vector<LogitBias> bias = {{0, 1.5f}, {static_cast<int32_t>(vocab - 1), -2.0f}};
    const std::vector<int32_t> banned = {static_cast<int32_t>(random.Below(vocab))};
    SampleJob job = Job({.temperature = 0,
                         .repetition_penalty = 0.5f + static_cast<float>(random.Uniform()) * 1.5f,
                         .presence_penalty = static_cast<float>(random.Normal()),
                         .frequency_penalty = static_cast<float>(random.Normal())});
    job.tokens = tokens.data();
    job.num_prompt = static_cast<int32_t>(random.Below(31));
    job.num_known = 30;
    job.bias = bias.data();
    job.num_bias = round % 2 == 0 ? 2 : 0;
    job.banned = banned.data();
    job.num_banned = round % 3 == 0 ? 1 : 0;
    const std::vector<double> expected = Modified(row, job);
    std::vector<double> sorted = expected;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    if (sorted[0] - sorted[1] < 1e-4) continue;
    ++compared;
    const auto best = std::max_element(expected.begin(), expected.end()) - expected.begin();
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      const SampleResult result = SampleOne(backend, row, job);
      ASSERT_EQ(result.token, best) << machine.name() << " round " << round;
      ASSERT_NEAR(result.logprob, RawLogprob(row, result.token), 1e-4);
    });
  }
  EXPECT_GT(compared, 350);
}

const SampleRow kSettings[] = {
    {.temperature = 1.0f},
    {.temperature = 0.3f},
    {.temperature = 2.5f},
    {.temperature = 1.0f, .top_k = 1},
    {.temperature = 1.0f, .top_k = 5},
    {.temperature = 1.0f, .top_k = 500},
    {.temperature = 1.0f, .top_p = 0.8f},
    {.temperature = 1.0f, .top_p = 0.01f},
    {.temperature = 1.0f, .min_p = 0.15f},
    {.temperature = 0.7f, .top_k = 6, .top_p = 0.9f},
    {.temperature = 1.5f, .top_k = 8, .top_p = 0.85f, .min_p = 0.1f},
    {.temperature = 1.0f, .top_p = 0.95f, .min_p = 0.02f},
    {.temperature = 0.9f, .typical_p = 0.6f},
    {.temperature = 1.4f, .top_p = 0.98f, .typical_p = 0.9f},
    {.temperature = 2.0f, .top_n_sigma = 1.1f},
    {.temperature = 0.5f, .xtc_probability = 1.0f, .xtc_threshold = 0.002f},
    {.temperature = 1.0f,
     .top_k = 400,
     .top_n_sigma = 2.5f,
     .typical_p = 0.7f,
     .xtc_probability = 1.0f,
     .xtc_threshold = 0.05f},
};

TEST(SampleTest, FrequenciesFollowTheExactProbabilities) {
  constexpr int kDraws = 20000, kRowsAtOnce = 500;
  Random random(21);
  for (const SampleRow& setting : kSettings) {
    const std::vector<float> row = RandomLogits(random, 13, 1.3);
    const std::vector<double> p = Probabilities({row.begin(), row.end()}, setting);
    std::vector<int64_t> count(row.size(), 0);
    for (int done = 0; done < kDraws; done += kRowsAtOnce) {
      std::vector<SampleJob> jobs;
      for (int i = 0; i < kRowsAtOnce; ++i) {
        // Half of the draws vary the position, half the seed.
        SampleRow params = setting;
        const int n = done + i;
        params.seed = n % 2 == 0 ? 12345 : 0x9000000000000000u + n;
        jobs.push_back(Job(params, n % 2 == 0 ? n : 7));
      }
      const std::vector<std::vector<float>> rows(kRowsAtOnce, row);
      for (const SampleResult& r : SampleRows(AnyBackend(), rows, jobs)) ++count[r.token];
    }
    double chi2 = 0;
    int cells = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0.0) {
        ASSERT_EQ(count[i], 0) << "token " << i << " was filtered out";
        continue;
      }
      const double expected = p[i] * kDraws;
      chi2 += (count[i] - expected) * (count[i] - expected) / expected;
      ++cells;
    }
    // Mean df, variance 2 df; five standard deviations.
    const double df = cells - 1;
    EXPECT_LE(chi2, df + 5 * std::sqrt(2 * df) + 1e-9)
        << "temperature " << setting.temperature << " top_k " << setting.top_k << " top_p "
        << setting.top_p << " min_p " << setting.min_p;
  }
}

TEST(SampleTest, DrawsAtNeighbouringPositionsAreIndependent) {
  constexpr int kDraws = 20000;
  const std::vector<float> row(4, 0.0f);
  std::vector<int64_t> pairs(16, 0);
  int32_t before = 0;
  for (int n = 0; n < kDraws; ++n) {
    const int32_t token = SampleOne(AnyBackend(), row, Job({.temperature = 1, .seed = 4}, n)).token;
    if (n > 0) ++pairs[before * 4 + token];
    before = token;
  }
  double chi2 = 0;
  for (int64_t c : pairs) chi2 += (c - kDraws / 16.0) * (c - kDraws / 16.0) / (kDraws / 16.0);
  EXPECT_LE(chi2, 15 + 5 * std::sqrt(30.0));
}

TEST(SampleTest, MatchesTheReferenceOnLargeVocabularies) {
  Random random(31);
  int compared = 0;
  for (int64_t vocab : {63, 2048, 32003}) {
    for (const SampleRow& setting : kSettings) {
      const std::vector<float> row = RandomLogits(random, vocab, 2.0);
      SampleRow params = setting;
      params.seed = random.Next();
      const std::vector<double> p = Probabilities({row.begin(), row.end()}, params);
      double margin = 0;
      const int32_t expected = ReferenceDraw(p, params.seed, 77, &margin);
      if (margin < 1e-4) continue;
      ++compared;
      OnEveryMachine([&](Backend& backend, const Machine& machine) {
        const SampleResult result = SampleOne(backend, row, Job(params, 77));
        EXPECT_EQ(result.token, expected) << machine.name() << " vocabulary " << vocab;
        EXPECT_NEAR(result.logprob, RawLogprob(row, expected), 1e-4);
      });
    }
  }
  EXPECT_GT(compared, 45);
}

TEST(SampleTest, FlatRowsDrawTheReferenceTokenUnderRandomFilters) {
  // On nearly flat rows a wrongly kept or dropped token changes many draws.
  Random random(51);
  int compared = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::vector<float> row = RandomLogits(random, 2 + random.Below(40), 0.3);
    SampleRow params{.temperature = 0.5f + static_cast<float>(random.Uniform()),
                     .seed = random.Next()};
    if (round % 2 == 0) params.top_k = static_cast<int32_t>(1 + random.Below(20));
    if (round % 3 != 0) params.top_p = static_cast<float>(0.05 + 0.95 * random.Uniform());
    if (round % 5 == 0) params.min_p = static_cast<float>(random.Uniform());
    const std::vector<double> logits(row.begin(), row.end());
    const std::vector<double> p = Probabilities(logits, params);
    // Skips rows where a rounding decides which tokens are kept.
    SampleRow looser = params, tighter = params;
    looser.top_p += params.top_p < 1.0f ? 1e-5f : 0.0f;
    tighter.top_p -= params.top_p < 1.0f ? 1e-5f : 0.0f;
    looser.min_p -= 1e-5f;
    tighter.min_p += 1e-5f;
    double margin = 0;
    const int32_t expected = ReferenceDraw(p, params.seed, 9, &margin);
    if (margin < 1e-4 || Probabilities(logits, looser) != Probabilities(logits, tighter)) continue;
    ++compared;
    ASSERT_EQ(SampleOne(AnyBackend(), row, Job(params, 9)).token, expected)
        << "round " << round << " top_k " << params.top_k << " top_p " << params.top_p << " min_p "
        << params.min_p;
  }
  EXPECT_GT(compared, 3900);
}

TEST(SampleTest, KeepsAllTiesAtAThreshold) {
  // Four tokens are equal at the top: top_k = 2 and top_p = 0.5 must keep all of them.
  std::vector<float> row(40, -5.0f);
  for (int i : {3, 11, 20, 39}) row[i] = 1.0f;
  for (const SampleRow& setting :
       {SampleRow{.temperature = 1, .top_k = 2}, SampleRow{.temperature = 1, .top_p = 0.5f}}) {
    std::map<int32_t, int> count;
    for (int n = 0; n < 400; ++n) ++count[SampleOne(AnyBackend(), row, Job(setting, n)).token];
    EXPECT_EQ(count.size(), 4u);
    for (const auto& [token, times] : count) {
      EXPECT_EQ(row[token], 1.0f);
      EXPECT_GT(times, 60);
    }
  }
}

TEST(SampleTest, ExtremeTemperaturesAndLogitsStayInTheVocabulary) {
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    std::vector<float> row(200, -3e38f);
    row[150] = 3e38f;
    row[151] = -INFINITY;
    for (float temperature : {1e-6f, 1.0f, 100.0f}) {
      for (int32_t top_k : {0, 3, 199}) {
        for (float top_p : {1.0f, 0.5f}) {
          const SampleRow params{.temperature = temperature, .top_k = top_k, .top_p = top_p};
          EXPECT_EQ(SampleOne(backend, row, Job(params, 3)).token, 150);
        }
      }
    }
    const std::vector<float> flat(200, 7.0f);
    const SampleRow params{.temperature = 1e-6f, .top_p = 0.99f};
    const int32_t token = SampleOne(backend, flat, Job(params, 3)).token;
    EXPECT_TRUE(token >= 0 && token < 200);
  });
}

TEST(SampleTest, ResultsDoNotDependOnBatchMachineOrRepetition) {
  Random random(41);
  constexpr int kRows = 33;
  constexpr int64_t kVocab = 1001;
  std::vector<std::vector<float>> rows;
  std::vector<SampleJob> jobs;
  std::vector<std::vector<int32_t>> tokens(kRows);
  for (int r = 0; r < kRows; ++r) {
    rows.push_back(RandomLogits(random, kVocab, 3.0));
    SampleRow params = kSettings[r % std::size(kSettings)];
    params.seed = random.Next();
    params.repetition_penalty = r % 3 == 0 ? 1.2f : 1.0f;
    params.frequency_penalty = r % 4 == 0 ? 0.3f : 0.0f;
    for (int i = 0; i < 60 + r; ++i)
      tokens[r].push_back(static_cast<int32_t>(random.Below(kVocab)));
    jobs.push_back(SampleJob{.params = params,
                             .tokens = tokens[r].data(),
                             .num_prompt = 20,
                             .num_known = static_cast<int32_t>(tokens[r].size())});
  }
  std::vector<SampleResult> first;
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::vector<SampleResult> together = SampleRows(backend, rows, jobs);
      if (first.empty()) first = together;
      for (int r = 0; r < kRows; ++r) {
        const SampleResult alone = SampleOne(backend, rows[r], jobs[r]);
        for (const SampleResult& result : {together[r], alone}) {
          ASSERT_EQ(result.token, first[r].token) << "row " << r;
          ASSERT_EQ(std::bit_cast<uint32_t>(result.logprob),
                    std::bit_cast<uint32_t>(first[r].logprob));
        }
      }
    }
  });
}

}  // namespace
}  // namespace quire
