// Draws of each sampler against exact probabilities that a Python program computed from the
// samplers' own descriptions (tests/testdata/samplers), and refusals of rows that lose all tokens.
// Seeds are fixed, so every run is the same.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

struct SamplerCase {
  std::string name;
  SampleRow params;
  std::vector<int32_t> tokens, bad_words, allowed, breakers;
  std::vector<LogitBias> bias;
  std::vector<float> logits;
  std::vector<double> p;

  // The job at the position after `tokens`.
  SampleJob job() const {
    return {.params = params,
            .tokens = tokens.data(),
            .num_prompt = 0,
            .num_known = static_cast<int32_t>(tokens.size()),
            .bias = bias.data(),
            .num_bias = static_cast<int32_t>(bias.size()),
            .bad_words = bad_words.data(),
            .allowed = allowed.data(),
            .breakers = breakers.data(),
            .num_bad_words = static_cast<int32_t>(bad_words.size()),
            .num_allowed = static_cast<int32_t>(allowed.size()),
            .num_breakers = static_cast<int32_t>(breakers.size())};
  }
};

template <typename T>
std::vector<T> Rest(std::istringstream& line) {
  std::vector<T> values;
  for (T value; line >> value;) values.push_back(value);
  return values;
}

void Set(const std::string& name, double value, SampleRow* row) {
  static const std::map<std::string, float SampleRow::*> kFloats = {
      {"temperature", &SampleRow::temperature},
      {"top_p", &SampleRow::top_p},
      {"min_p", &SampleRow::min_p},
      {"top_n_sigma", &SampleRow::top_n_sigma},
      {"dynatemp_range", &SampleRow::dynatemp_range},
      {"dynatemp_exponent", &SampleRow::dynatemp_exponent},
      {"typical_p", &SampleRow::typical_p},
      {"xtc_probability", &SampleRow::xtc_probability},
      {"xtc_threshold", &SampleRow::xtc_threshold},
      {"dry_multiplier", &SampleRow::dry_multiplier},
      {"dry_base", &SampleRow::dry_base},
  };
  static const std::map<std::string, int32_t SampleRow::*> kCounts = {
      {"top_k", &SampleRow::top_k},
      {"dry_allowed_length", &SampleRow::dry_allowed_length},
      {"dry_last_n", &SampleRow::dry_last_n},
  };
  if (const auto found = kFloats.find(name); found != kFloats.end()) {
    row->*found->second = static_cast<float>(value);
  } else {
    row->*kCounts.at(name) = static_cast<int32_t>(value);
  }
}

std::vector<SamplerCase> ReadCases() {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/testdata/samplers/samplers.txt");
  std::vector<SamplerCase> cases;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string key, name;
    line >> key;
    if (key == "case") {
      line >> cases.emplace_back().name;
    } else if (key == "set") {
      double value = 0;
      line >> name >> value;
      Set(name, value, &cases.back().params);
    } else if (key == "bias") {
      for (LogitBias b; line >> b.token >> b.bias;) cases.back().bias.push_back(b);
    } else if (key == "logits") {
      cases.back().logits = Rest<float>(line);
    } else if (key == "p") {
      cases.back().p = Rest<double>(line);
    } else {
      SamplerCase& c = cases.back();
      (key == "tokens"      ? c.tokens
       : key == "bad_words" ? c.bad_words
       : key == "allowed"   ? c.allowed
                            : c.breakers) = Rest<int32_t>(line);
    }
  }
  return cases;
}

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

TEST(SampleFiltersTest, FrequenciesFollowTheExactProbabilities) {
  constexpr int kDraws = 20000;
  const auto backend = MakeBackend({cpu::BestIsa(), 1});
  const std::vector<SamplerCase> cases = ReadCases();
  EXPECT_GT(cases.size(), 20u);
  for (const SamplerCase& c : cases) {
    std::vector<SampleJob> jobs(kDraws, c.job());
    for (int n = 0; n < kDraws; ++n) {
      jobs[n].params.seed = 0x9000000000000000u + static_cast<uint64_t>(n) * 77;
    }
    std::vector<int64_t> count(c.p.size(), 0);
    for (const SampleResult& r : Draw(*backend, c.logits, jobs)) {
      ASSERT_EQ(r.nonfinite, 0) << c.name;
      ++count[r.token];
    }
    double chi2 = 0;
    int cells = 0;
    for (size_t i = 0; i < c.p.size(); ++i) {
      if (c.p[i] == 0.0) {
        EXPECT_EQ(count[i], 0) << c.name << ": token " << i << " is dropped";
        continue;
      }
      const double expected = c.p[i] * kDraws;
      const double off = static_cast<double>(count[i]) - expected;
      chi2 += off * off / expected;
      ++cells;
    }
    // Mean df, variance 2 df; five standard deviations.
    const double df = cells - 1;
    EXPECT_LE(chi2, df + 5 * std::sqrt(2 * df) + 1e-9) << c.name;
  }
}

// The softmax of the logits that a processed row keeps is the distribution it is drawn from.
TEST(SampleFiltersTest, KeptLogitsGiveTheExactProbabilities) {
  const auto backend = MakeBackend({cpu::BestIsa(), 1});
  int checked = 0;
  for (const SamplerCase& c : ReadCases()) {
    const float xtc = c.params.xtc_probability;
    if (xtc > 0.0f && xtc < 1.0f) continue;  // the file has the mean over the coin
    const auto vocab = static_cast<int64_t>(c.logits.size());
    for (const KeptLogits kept : {KeptLogits::kProcessed, KeptLogits::kRaw}) {
      SampleJob job = c.job();
      job.kept = kept;
      Array row(DType::kF32, {1, vocab});
      std::copy(c.logits.begin(), c.logits.end(), row.floats());
      SampleResult result;
      backend->Sample({.logits = row.view(), .jobs = &job, .results = &result});
      if (kept == KeptLogits::kRaw) {
        EXPECT_TRUE(std::equal(c.logits.begin(), c.logits.end(), row.floats())) << c.name;
        continue;
      }
      double sum = 0;
      for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row.floats()[i]));
      for (int64_t i = 0; i < vocab; ++i) {
        EXPECT_NEAR(std::exp(static_cast<double>(row.floats()[i])) / sum, c.p[i], 1e-6)
            << c.name << ": token " << i;
      }
    }
    ++checked;
  }
  EXPECT_GT(checked, 15);
}

TEST(SampleFiltersTest, EveryMachineDrawsTheSameTokens) {
  Random random(61);
  for (const SamplerCase& c : ReadCases()) {
    // A long row around the case's own logits, for every path of the vector loops.
    std::vector<float> row(2051);
    for (float& l : row) l = static_cast<float>(random.Normal());
    std::copy(c.logits.begin(), c.logits.end(), row.begin());
    std::vector<SampleJob> jobs(40, c.job());
    for (SampleJob& job : jobs) job.params.seed = random.Next();
    std::vector<SampleResult> first;
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      const std::vector<SampleResult> results = Draw(backend, row, jobs);
      if (first.empty()) first = results;
      for (size_t r = 0; r < jobs.size(); ++r) {
        ASSERT_EQ(results[r].token, first[r].token) << c.name << " " << machine.name();
        ASSERT_EQ(std::bit_cast<uint32_t>(results[r].logprob),
                  std::bit_cast<uint32_t>(first[r].logprob));
      }
    });
  }
}

TEST(SampleFiltersTest, GreedyTakesTheBestTokenThatIsLeft) {
  const auto backend = MakeBackend({cpu::BestIsa(), 1});
  const std::vector<float> row = {1, 5, 4, 3, 2, 0};
  SamplerCase c{.params = {.temperature = 0}, .tokens = {2, 3}};
  const auto token = [&] { return Draw(*backend, row, {c.job()})[0].token; };
  EXPECT_EQ(token(), 1);
  c.bad_words = {~1};
  EXPECT_EQ(token(), 2);
  c.bad_words = {~1, 2, 3, ~2};
  EXPECT_EQ(token(), 3);
  c.bad_words = {~1, 3, 3, ~2};
  EXPECT_EQ(token(), 2);
  c.allowed = {5, 4};
  EXPECT_EQ(token(), 4);
  // Filters of a draw change nothing at temperature 0.
  c.params.typical_p = 0.1f;
  c.params.top_n_sigma = 0.1f;
  EXPECT_EQ(token(), 4);
  c.allowed = {1};
  EXPECT_EQ(Draw(*backend, row, {c.job()})[0].nonfinite, SampleResult::kNoToken);
}

}  // namespace
}  // namespace quire
