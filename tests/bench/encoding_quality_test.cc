// The figures of bench/quality on distributions whose values are known, and the quality that
// docs/quality.md promises of 8-bit matrices.
//
// Covers bench/quality/narrowed_checkpoint.cc
#include "bench/quality/encoding_quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "engine/model/checkpoint/model_config.h"

namespace quire {
namespace {

constexpr char kModel[] = QUIRE_SOURCE_DIR "/models/demo";

// Two distributions over two tokens, by hand: p = (3/4, 1/4), q = (1/2, 1/2), then q = p.
TEST(EncodingQualityTest, FiguresOfKnownDistributions) {
  const float p[] = {std::log(3.0f), 0.0f}, q[] = {0.0f, 0.0f}, shifted[] = {5 + p[0], 5.0f};
  EncodingQuality quality;
  quality.Add(p, q, 2, 1);
  EXPECT_NEAR(quality.mean_kl(), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-6);
  EXPECT_NEAR(quality.perplexity(), 2, 1e-6);
  EXPECT_NEAR(quality.reference_perplexity(), 4, 1e-6);
  quality.Add(p, shifted, 2, 0);
  EXPECT_NEAR(quality.mean_kl(), (0.75 * std::log(1.5) + 0.25 * std::log(0.5)) / 2, 1e-6);
  EXPECT_EQ(quality.top1_agreement(), 1);
  const float other[] = {-1.0f, 0.0f};
  quality.Add(p, other, 2, 0);
  EXPECT_NEAR(quality.top1_agreement(), 2.0 / 3, 1e-9);
  EXPECT_EQ(quality.tokens, 3);
}

// The bounds that docs/quality.md names.
TEST(EncodingQualityTest, EightBitMatricesOfTheDemoModelKeepTheirPromise) {
  const absl::StatusOr<Documents> stories =
      ReadDocuments(kModel, QUIRE_SOURCE_DIR "/bench/quality/stories.txt");
  ASSERT_TRUE(stories.ok()) << stories.status();
  ASSERT_EQ(stories->size(), 30);
  const EncodingQuality fp8 = MeasureEncoding(kModel, *stories, {.options = {.eight_bit = true}});
  EXPECT_LT(fp8.mean_kl(), 2e-4);
  EXPECT_GT(fp8.mean_kl(), 1e-5) << "nothing was rounded";
  EXPECT_GT(fp8.top1_agreement(), 0.95);
  EXPECT_LT(fp8.perplexity(), 1.002 * fp8.reference_perplexity());
}

TEST(EncodingQualityTest, BlocksOfTheDemoModelKeepTheirPromise) {
  const absl::StatusOr<Documents> stories =
      ReadDocuments(kModel, QUIRE_SOURCE_DIR "/bench/quality/stories.txt");
  ASSERT_TRUE(stories.ok()) << stories.status();
  const EncodingQuality fp8 = MeasureEncoding(kModel, *stories, {.stored = NarrowForm::kFp8Blocks});
  EXPECT_LT(fp8.mean_kl(), 2e-4);
  EXPECT_GT(fp8.mean_kl(), 1e-5) << "nothing was rounded";
  EXPECT_GT(fp8.top1_agreement(), 0.95);
  EXPECT_LT(fp8.perplexity(), 1.002 * fp8.reference_perplexity());
}

TEST(EncodingQualityTest, IntegersOfTheDemoModelKeepTheirPromise) {
  const absl::StatusOr<Documents> stories =
      ReadDocuments(kModel, QUIRE_SOURCE_DIR "/bench/quality/stories.txt");
  ASSERT_TRUE(stories.ok()) << stories.status();
  const EncodingQuality int8 = MeasureEncoding(kModel, *stories, {.stored = NarrowForm::kInt8Rows});
  EXPECT_LT(int8.mean_kl(), 1e-4);
  EXPECT_GT(int8.mean_kl(), 1e-5) << "nothing was rounded";
  EXPECT_GT(int8.top1_agreement(), 0.95);
  EXPECT_LT(int8.perplexity(), 1.001 * int8.reference_perplexity());
}

TEST(EncodingQualityTest, GroupsOfIntegersOfTheDemoModelKeepTheirPromise) {
  const absl::StatusOr<Documents> stories =
      ReadDocuments(kModel, QUIRE_SOURCE_DIR "/bench/quality/stories.txt");
  ASSERT_TRUE(stories.ok()) << stories.status();
  const EncodingQuality int8 =
      MeasureEncoding(kModel, *stories, {.stored = NarrowForm::kInt8Groups});
  EXPECT_LT(int8.mean_kl(), 1e-5);
  EXPECT_GT(int8.mean_kl(), 1e-6) << "nothing was rounded";
  EXPECT_GT(int8.top1_agreement(), 0.98);
  EXPECT_LT(int8.perplexity(), 1.001 * int8.reference_perplexity());
  const EncodingQuality int4 =
      MeasureEncoding(kModel, *stories, {.stored = NarrowForm::kInt4Groups});
  EXPECT_LT(int4.mean_kl(), 3e-3);
  EXPECT_GT(int4.mean_kl(), 3e-4) << "these are not 4 bits";
  EXPECT_GT(int4.top1_agreement(), 0.92);
  EXPECT_LT(int4.perplexity(), 1.005 * int4.reference_perplexity());
}

TEST(EncodingQualityTest, EightBitKvOfTheDemoModelKeepsItsPromise) {
  const absl::StatusOr<Documents> stories =
      ReadDocuments(kModel, QUIRE_SOURCE_DIR "/bench/quality/stories.txt");
  ASSERT_TRUE(stories.ok()) << stories.status();
  const EncodingQuality fp8 =
      MeasureEncoding(kModel, *stories, {.options = {.kv_dtype = DType::kE4M3}});
  EXPECT_LT(fp8.mean_kl(), 1e-5);
  EXPECT_GT(fp8.mean_kl(), 5e-7) << "nothing was rounded";
  EXPECT_GT(fp8.top1_agreement(), 0.99);
  EXPECT_LT(fp8.perplexity(), 1.001 * fp8.reference_perplexity());
}

// Random weights 64 columns wide are a hard case: little averages out, and no token is likelier
// than another by much.
TEST(EncodingQualityTest, RandomModelsKeepTheirPromise) {
  for (const char* name : {"llama", "qwen3"}) {
    const std::string model = std::string(QUIRE_SOURCE_DIR "/tests/testdata/models/") + name;
    const Documents texts = RandomDocuments(ModelConfig::Load(model)->vocab_size, 8);
    const auto expect = [&](const EncodedModel& encoded, double most_kl, double least_agreement) {
      const EncodingQuality quality = MeasureEncoding(model, texts, encoded);
      EXPECT_EQ(quality.tokens, 8 * 255);
      EXPECT_LT(quality.mean_kl(), most_kl) << name;
      EXPECT_GT(quality.mean_kl(), most_kl / 10) << name << ": nothing was rounded";
      EXPECT_GT(quality.top1_agreement(), least_agreement) << name;
    };
    expect({.options = {.eight_bit = true}}, 0.2, 0.5);
    expect({.stored = NarrowForm::kFp8Blocks}, 0.2, 0.5);
    expect({.stored = NarrowForm::kInt8Rows}, 0.02, 0.85);
    expect({.options = {.kv_dtype = DType::kE4M3}}, 0.06, 0.7);
  }
}

TEST(EncodingQualityTest, AModelIsItself) {
  const Documents texts = {{0, 17, 300, 4, 5, 1999}, {0, 1000}, {}, {7}};
  const EncodingQuality same = MeasureEncoding(kModel, texts, {});
  EXPECT_EQ(same.tokens, 6);
  EXPECT_EQ(same.mean_kl(), 0);
  EXPECT_EQ(same.top1_agreement(), 1);
  EXPECT_EQ(same.perplexity(), same.reference_perplexity());
}

}  // namespace
}  // namespace quire
