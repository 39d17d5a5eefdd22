// Score and Pool against double arithmetic: values, order, ranks, and rows without a distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double LogSum(const float* row, int64_t vocab) {
  const double top = *std::max_element(row, row + vocab);
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]) - top);
  return top + std::log(sum);
}

// All tokens in the order that reading.h states.
std::vector<int32_t> InOrder(const float* row, int64_t vocab) {
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [row](int a, int b) { return row[a] > row[b]; });
  return order;
}

void ExpectLogprob(uint32_t word, double expected) {
  const double got = std::bit_cast<float>(word);
  if (expected == -kInfinity) {
    EXPECT_EQ(got, -kInfinity);
    return;
  }
  EXPECT_NEAR(got, expected, 1e-5 * std::max(1.0, -expected));
}

// A row with ties and holes.
void Fill(float* row, int64_t vocab, Random& random) {
  const int kind = static_cast<int>(random.Below(4));
  for (int64_t i = 0; i < vocab; ++i) {
    const auto normal = static_cast<float>(random.Normal());
    row[i] = kind == 0 ? normal : kind == 1 ? std::round(normal) : kind == 2 ? 9 * normal : 0.5f;
    if (kind == 1 && random.Below(5) == 0) row[i] = -INFINITY;
    if (row[i] == 0 && random.Below(2) == 0) row[i] = -0.0f;  // a tie with 0
  }
}

TEST(ScoreTest, AgreesWithDoubles) {
  Random random(91);
  for (const int64_t vocab : {1, 7, 64, 1000, 4099}) {
    constexpr int32_t kRows = 24;
    Array logits(DType::kF32, {kRows, vocab});
    std::vector<int32_t> tokens(kRows);
    std::vector<std::vector<int32_t>> ids(kRows);
    std::vector<std::vector<uint32_t>> out(kRows);
    std::vector<ScoreJob> jobs(kRows);
    for (int32_t r = 0; r < kRows; ++r) {
      Fill(logits.floats() + r * vocab, vocab, random);
      tokens[r] = static_cast<int32_t>(random.Below(vocab));
      const auto num_top = static_cast<int32_t>(random.Below(kMaxTopTokens + 1));
      for (int64_t i = random.Below(5); i > 0; --i) ids[r].push_back(random.Below(vocab));
      const auto num_ids = static_cast<int32_t>(ids[r].size());
      out[r].assign(static_cast<size_t>(ScoreWords(num_top, num_ids)), 77);
      jobs[kRows - 1 - r] = {.token = &tokens[r],
                             .ids = ids[r].data(),
                             .out = out[r].data(),
                             .row = r,
                             .num_top = num_top,
                             .num_ids = num_ids};
    }
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name() + " vocab " + std::to_string(vocab));
      backend.Score({.logits = logits.view(), .jobs = jobs.data(), .num_jobs = kRows});
      for (int32_t r = 0; r < kRows; ++r) {
        const ScoreJob& job = jobs[kRows - 1 - r];
        const float* row = logits.floats() + r * vocab;
        if (*std::max_element(row, row + vocab) == -INFINITY) {
          EXPECT_EQ(out[r][2], 0u);
          continue;
        }
        const double log_sum = LogSum(row, vocab);
        const std::vector<int32_t> order = InOrder(row, vocab);
        const auto place = std::ranges::find(order, tokens[r]) - order.begin();
        ASSERT_EQ(out[r][0], static_cast<uint32_t>(tokens[r]));
        ExpectLogprob(out[r][1], row[tokens[r]] - log_sum);
        ASSERT_EQ(out[r][2], static_cast<uint32_t>(place + 1));
        for (int32_t i = 0; i < job.num_top; ++i) {
          const bool possible = i < vocab && row[order[i]] > -INFINITY;
          ASSERT_EQ(out[r][3 + 2 * i], possible ? static_cast<uint32_t>(order[i]) : kNoToken);
          if (possible) ExpectLogprob(out[r][4 + 2 * i], row[order[i]] - log_sum);
        }
        for (size_t i = 0; i < ids[r].size(); ++i) {
          ExpectLogprob(out[r][ScoreWords(job.num_top, 0) + i], row[ids[r][i]] - log_sum);
        }
      }
    });
  }
}

TEST(ScoreTest, TellsRowsWithoutADistribution) {
  const auto backend = MakeBackend({cpu::BestIsa(), 1});
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Array logits(DType::kF32, {1, 3});
    for (int i = 0; i < 3; ++i) logits.floats()[i] = i == 1 || bad < 0 ? bad : 1.0f;
    const int32_t token = 0;
    std::vector<uint32_t> out(ScoreWords(2, 0), 77);
    const ScoreJob job{.token = &token, .out = out.data(), .num_top = 2};
    backend->Score({.logits = logits.view(), .jobs = &job, .num_jobs = 1});
    EXPECT_EQ(out[2], 0u) << bad;
  }
}

TEST(PoolTest, AddsRows) {
  Random random(5);
  constexpr int64_t kRows = 37, kWidth = 19;
  Array x(DType::kF32, {kRows, kWidth});
  for (int64_t i = 0; i < kRows * kWidth; ++i) x.floats()[i] = random.Normal();
  std::vector<float> first(kWidth, 3.0f), second(kWidth, 0.25f);
  const PoolJob jobs[] = {{.out = first.data(), .begin = 2, .count = 30, .adds = 0},
                          {.out = second.data(), .begin = 36, .count = 1, .adds = 1}};
  MakeBackend({cpu::BestIsa(), 2})->Pool({.x = x.view(), .jobs = jobs, .num_jobs = 2});
  for (int64_t h = 0; h < kWidth; ++h) {
    double sum = 0;
    for (int64_t r = 2; r < 32; ++r) sum += x.floats()[r * kWidth + h];
    EXPECT_NEAR(first[h], sum, 1e-5);
    EXPECT_NEAR(second[h], 0.25 + x.floats()[36 * kWidth + h], 1e-6);
  }
}

}  // namespace
}  // namespace quire
