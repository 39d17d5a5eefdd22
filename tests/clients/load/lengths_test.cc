// The length tables: their quantiles as published, and the lengths drawn from them.
#include "clients/load/workload/lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace quire::load {
namespace {

constexpr int kDraws = 100'000;

struct Published {
  std::string name;
  std::vector<double> probabilities, input, output;
  double input_mean, output_mean;
};

std::vector<Published> Tables() {
  const std::vector<double> all = {0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99};
  const std::vector<double> from_p25 = {0.25, 0.5, 0.75, 0.9, 0.95, 0.99};
  return {{"azure-conversation",
           all,
           {181, 396, 1020, 1189, 2735, 4083, 4142},
           {41, 85, 129, 395, 424, 451, 601},
           1155,
           211},
          {"azure-code",
           all,
           {75, 578, 1469, 2745, 5194, 7315, 7436},
           {6, 9, 13, 24, 55, 90, 252},
           2048,
           28},
          {"mooncake-conversation",
           all,
           {901, 2306, 6909, 15368, 27367, 39552, 85401},
           {10, 156, 350, 472, 597, 698, 1120},
           12035,
           343},
          {"mooncake-synthetic",
           all,
           {22, 277, 11587, 23175, 38615, 49009, 66458},
           {2, 11, 69, 250, 389, 519, 769},
           15325,
           149},
          {"arxiv-summarization",
           from_p25,
           {1986, 2730, 3370, 3702, 3813, 3934},
           {115, 167, 242, 372, 737, 3273},
           2588,
           291}};
}

double MeanOf(const std::vector<int32_t>& values) {
  double sum = 0;
  for (const int32_t value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TEST(LengthsTest, QuantilesAreAsPublished) {
  for (const Published& table : Tables()) {
    for (size_t i = 0; i < table.probabilities.size(); ++i) {
      double input = 0, output = 0;
      ASSERT_TRUE(TableQuantiles(table.name, table.probabilities[i], &input, &output));
      EXPECT_NEAR(input, table.input[i], 1e-6) << table.name;
      EXPECT_NEAR(output, table.output[i], 1e-6) << table.name;
    }
  }
}

// Of the drawn lengths, the share below each published quantile is its probability, and the mean is
// the published one to within the bounds of lengths.h.
TEST(LengthsTest, DrawsHaveTheQuantilesAndTheMean) {
  for (const Published& table : Tables()) {
    std::vector<int32_t> input, output;
    for (int i = 0; i < kDraws; ++i) {
      Random random(11, Draw::kLengths, static_cast<uint64_t>(i));
      const Lengths lengths = DrawFromTable(table.name, random);
      input.push_back(lengths.input);
      output.push_back(lengths.output);
    }
    EXPECT_NEAR(MeanOf(input) / table.input_mean, 1, 0.055) << table.name;
    EXPECT_NEAR(MeanOf(output) / table.output_mean, 1, 0.055) << table.name;
    std::sort(input.begin(), input.end());
    std::sort(output.begin(), output.end());
    for (size_t i = 0; i < table.probabilities.size(); ++i) {
      const auto at = static_cast<size_t>(table.probabilities[i] * kDraws);
      EXPECT_NEAR(input[at] / table.input[i], 1, 0.06) << table.name << " input " << i;
      EXPECT_NEAR(output[at], table.output[i], 1 + 0.1 * table.output[i])
          << table.name << " output " << i;
    }
    EXPECT_GE(input.front(), 1);
    EXPECT_GE(output.front(), 1);
  }
}

TEST(LengthsTest, ShareGptLikeHasItsMeansBoundsAndCorrelation) {
  std::vector<int32_t> input, output;
  double x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (int i = 0; i < kDraws; ++i) {
    Random random(2, Draw::kLengths, static_cast<uint64_t>(i));
    const Lengths lengths = DrawFromTable("sharegpt-like", random);
    ASSERT_GE(lengths.input, 4);
    ASSERT_LE(lengths.input, 1024);
    ASSERT_GE(lengths.output, 4);
    ASSERT_LE(lengths.input + lengths.output, 2049);  // each was rounded
    input.push_back(lengths.input);
    output.push_back(lengths.output);
    const double a = std::log(lengths.input), b = std::log(lengths.output);
    x += a, y += b, xx += a * a, yy += b * b, xy += a * b;
  }
  EXPECT_NEAR(MeanOf(input), 215, 3);
  EXPECT_NEAR(MeanOf(output), 179, 3);
  const double n = kDraws;
  const double correlation = (xy - x * y / n) / std::sqrt((xx - x * x / n) * (yy - y * y / n));
  EXPECT_NEAR(correlation, 0.28, 0.03);  // 0.3 before the tails are cut
}

TEST(LengthsTest, NamesAreKnown) {
  for (const std::string& name : LengthTableNames()) EXPECT_TRUE(IsLengthTable(name)) << name;
  EXPECT_FALSE(IsLengthTable("sharegpt"));
  double input = 0, output = 0;
  EXPECT_FALSE(TableQuantiles("sharegpt-like", 0.5, &input, &output));
}

}  // namespace
}  // namespace quire::load
