// The tables, and drawing from them.
#include "clients/load/workload/lengths.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace quire::load {
namespace {

constexpr std::array<double, 9> kProbabilities = {0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1};
using Quantiles = std::array<double, 9>;

struct Table {
  const char* name;
  Quantiles input, output;
};

// The first column is the least value of lengths.h's first paragraph, the last repeats p99. Where
// p5 was not measured it is on the line from the least value to p25.
constexpr Table kTables[] = {
    {"azure-conversation",
     {1, 181, 396, 1020, 1189, 2735, 4083, 4142, 4142},
     {1, 41, 85, 129, 395, 424, 451, 601, 601}},
    {"azure-code",
     {1, 75, 578, 1469, 2745, 5194, 7315, 7436, 7436},
     {3, 6, 9, 13, 24, 55, 90, 252, 252}},
    {"mooncake-conversation",
     {1, 901, 2306, 6909, 15368, 27367, 39552, 85401, 85401},
     {2, 10, 156, 350, 472, 597, 698, 1120, 1120}},
    {"mooncake-synthetic",
     {1, 22, 277, 11587, 23175, 38615, 49009, 66458, 66458},
     {1, 2, 11, 69, 250, 389, 519, 769, 769}},
    {"arxiv-summarization",
     {602, 878.8, 1986, 2730, 3370, 3702, 3813, 3934, 3934},
     {28, 45.4, 115, 167, 242, 372, 737, 3273, 3273}},
};

constexpr char kShareGptLike[] = "sharegpt-like";

double At(const Quantiles& quantiles, double p) {
  size_t i = 1;
  while (i + 1 < kProbabilities.size() && p > kProbabilities[i]) ++i;
  const double share = (p - kProbabilities[i - 1]) / (kProbabilities[i] - kProbabilities[i - 1]);
  return quantiles[i - 1] + share * (quantiles[i] - quantiles[i - 1]);
}

const Table* Find(const std::string& name) {
  for (const Table& table : kTables) {
    if (name == table.name) return &table;
  }
  return nullptr;
}

int32_t Rounded(double value) { return std::max(1, static_cast<int32_t>(std::lround(value))); }

// Log-normal lengths with the filter that chat benchmarks use: both at least 4, the prompt at most
// 1,024, together at most 2,048. The medians before the filter were found by integration so that
// the means after it are 215 and 179.
Lengths DrawShareGptLike(Random& random) {
  constexpr double kInputMedian = 152.303768, kOutputMedian = 118.378485;
  constexpr double kInputSigma = 1.2, kOutputSigma = 1.0, kCorrelation = 0.3;
  for (;;) {
    const double z = random.Normal();
    const double independent = random.Normal();
    const double w = kCorrelation * z + std::sqrt(1 - kCorrelation * kCorrelation) * independent;
    const double input = kInputMedian * std::exp(kInputSigma * z);
    const double output = kOutputMedian * std::exp(kOutputSigma * w);
    if (input < 4 || input > 1024 || output < 4 || input + output > 2048) continue;
    return {Rounded(input), Rounded(output)};
  }
}

}  // namespace

std::vector<std::string> LengthTableNames() {
  std::vector<std::string> names;
  for (const Table& table : kTables) names.emplace_back(table.name);
  names.emplace_back(kShareGptLike);
  return names;
}

bool IsLengthTable(const std::string& name) {
  return name == kShareGptLike || Find(name) != nullptr;
}

Lengths DrawFromTable(const std::string& name, Random& random) {
  const Table* table = Find(name);
  if (table == nullptr) return DrawShareGptLike(random);
  const double input = At(table->input, random.Uniform());
  const double output = At(table->output, random.Uniform());
  return {Rounded(input), Rounded(output)};
}

bool TableQuantiles(const std::string& name, double p, double* input, double* output) {
  const Table* table = Find(name);
  if (table == nullptr) return false;
  *input = At(table->input, p);
  *output = At(table->output, p);
  return true;
}

}  // namespace quire::load
