// The plan codec: every field of a plan arrives, and malformed bytes are refused without
// reading past their end.
#include "engine/worker/process/plan_codec.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "engine/worker/rank/row_tables.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

template <typename T>
std::vector<std::byte> Raw(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void ExpectEqual(const StepPlan& a, const StepPlan& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.num_tokens, b.num_tokens);
  EXPECT_EQ(a.num_samples, b.num_samples);
  EXPECT_EQ(a.graph_size, b.graph_size);
  EXPECT_EQ(a.shutdown, b.shutdown);
  EXPECT_EQ(a.watch.timed, b.watch.timed);
  EXPECT_EQ(a.watch.uncaptured, b.watch.uncaptured);
  EXPECT_EQ(a.watch.recorded, b.watch.recorded);
  EXPECT_EQ(Raw(a.new_rows), Raw(b.new_rows));
  EXPECT_EQ(Raw(a.token_runs), Raw(b.token_runs));
  EXPECT_EQ(Raw(a.block_adds), Raw(b.block_adds));
  EXPECT_EQ(Raw(a.block_clones), Raw(b.block_clones));
  EXPECT_EQ(Raw(a.work), Raw(b.work));
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(Raw(a.biases), Raw(b.biases));
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(Raw(a.readings), Raw(b.readings));
}

// Elements of random bytes: the codec must not depend on their values.
template <typename T>
void FillRandom(std::vector<T>& values, size_t count, std::mt19937_64& random) {
  values.resize(count);
  for (T& value : values) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      reinterpret_cast<unsigned char*>(&value)[i] = static_cast<unsigned char>(random());
    }
  }
}

StepPlan RandomPlan(const PlanBounds& bounds, std::mt19937_64& random, bool full) {
  const auto count = [&](int64_t most) {
    return static_cast<size_t>(full ? most : static_cast<int64_t>(random() % (most + 1)));
  };
  StepPlan plan;
  plan.step = random();
  plan.num_tokens = static_cast<int32_t>(random());
  plan.num_samples = static_cast<int32_t>(random());
  plan.graph_size = static_cast<int32_t>(random());
  plan.shutdown = random() % 2 == 0;
  plan.watch = {
      .timed = random() % 2 == 0, .uncaptured = random() % 2 == 0, .recorded = random() % 2 == 0};
  FillRandom(plan.new_rows, count(bounds.max_rows), random);
  FillRandom(plan.token_runs, count(bounds.max_rows), random);
  FillRandom(plan.block_adds, count(bounds.num_blocks), random);
  FillRandom(plan.block_clones, count(bounds.max_rows), random);
  FillRandom(plan.work, count(bounds.max_rows), random);
  FillRandom(plan.tokens, count(bounds.max_tokens + bounds.max_rows), random);
  FillRandom(plan.biases, count(bounds.max_rows * RowTables::kMaxBiases), random);
  FillRandom(plan.ids, count(bounds.max_rows * RowTables::kMaxIds), random);
  FillRandom(plan.masks, count(bounds.max_rows), random);
  FillRandom(plan.mask_words, count(bounds.max_rows * MaskWords(bounds.vocab_size)), random);
  FillRandom(plan.readings, count(bounds.max_rows * 2), random);
  return plan;
}

TEST(PlanCodecTest, EveryFieldOfAPlanArrives) {
  std::mt19937_64 random(1);
  const PlanBounds bounds{.max_rows = 3, .max_tokens = 7, .num_blocks = 5, .vocab_size = 70};
  StepPlan decoded;  // reused, as the worker does
  for (int i = 0; i < 200; ++i) {
    const StepPlan plan = RandomPlan(bounds, random, /*full=*/i == 0);
    std::vector<std::byte> bytes(static_cast<size_t>(bounds.PlanBytes()));
    const size_t used = EncodePlan(plan, bytes);
    ASSERT_LE(used, bytes.size());
    ASSERT_TRUE(DecodePlan(bytes, decoded));
    ExpectEqual(decoded, plan);
    ASSERT_TRUE(DecodePlan(std::span(bytes).first(used), decoded));
    EXPECT_FALSE(DecodePlan(std::span(bytes).first(used - 1), decoded));
  }
}

TEST(PlanCodecTest, TheEncodedBytesOfASlotAreEnough) {
  std::mt19937_64 random(5);
  const PlanBounds bounds{.max_rows = 4, .max_tokens = 64, .num_blocks = 32};
  std::vector<std::byte> slot(static_cast<size_t>(bounds.PlanBytes()));
  const size_t written = EncodePlan(RandomPlan(bounds, random, /*full=*/false), slot);
  EXPECT_EQ(EncodedBytes(slot), written);
  StepPlan plan;
  EXPECT_TRUE(DecodePlan(std::span(slot).first(written), plan));
  for (size_t length = 0; length < written; ++length) {
    EXPECT_LE(EncodedBytes(std::span(slot).first(length)), length);
  }
}

TEST(PlanCodecTest, TheBoundsAreTight) {
  std::mt19937_64 random(2);
  const PlanBounds bounds{.max_rows = 4,
                          .max_draws = 6,
                          .max_tokens = 9,
                          .num_blocks = 3,
                          .vocab_size = 33,
                          .hidden_size = 333};
  std::vector<std::byte> bytes(static_cast<size_t>(bounds.PlanBytes()));
  EXPECT_EQ(EncodePlan(RandomPlan(bounds, random, true), bytes), bytes.size());
  StepResult result;
  result.samples.resize(6);
  result.parts.resize(StepProfiler::kMaxParts + 1);  // the idle time comes first
  // A score with 20 top tokens for each token, and hidden states for each row.
  result.reading_words.resize(9 * 43 + 4 * 333);
  bytes.resize(static_cast<size_t>(bounds.ResultBytes()));
  EXPECT_EQ(EncodeResult(result, bytes), bytes.size());
}

TEST(PlanCodecDeathTest, APlanBeyondItsBoundsIsABug) {
  std::vector<std::byte> bytes(8);
  EXPECT_DEATH(EncodePlan(StepPlan(), bytes), "CHECK failed");
}

StepResult SomeResult() {
  StepResult result{.step = 7,
                    .checksum = 99,
                    .started_ns = -5,
                    .enqueued_ns = 3,
                    .finished_ns = 1'000'000'000'000};
  result.parts = {{StepPart::kIdle, 9}, {StepPart::kCollectives, 4'000'000'000}};
  result.samples = {{.row = 3, .result = {.token = 17, .logprob = -0.25f, .nonfinite = 0}},
                    {.row = 1, .result = {.token = 2, .logprob = -1.5f, .nonfinite = 1}}};
  return result;
}

TEST(PlanCodecTest, AResultArrives) {
  StepResult result = SomeResult();
  result.reading_words = {1, 0, 0xffffffff};
  std::vector<std::byte> bytes(1000);
  EncodeResult(result, bytes);
  StepResult decoded;
  ASSERT_TRUE(DecodeResult(bytes, decoded));
  EXPECT_EQ(decoded.step, result.step);
  EXPECT_EQ(decoded.checksum, result.checksum);
  EXPECT_EQ(decoded.started_ns, result.started_ns);
  EXPECT_EQ(decoded.enqueued_ns, result.enqueued_ns);
  EXPECT_EQ(decoded.parts, result.parts);
  EXPECT_EQ(decoded.finished_ns, result.finished_ns);
  EXPECT_EQ(Raw(decoded.samples), Raw(result.samples));
  EXPECT_EQ(decoded.reading_words, result.reading_words);
}

// Any change to the head shows, and none reads beyond the bytes (the address sanitizer watches).
TEST(PlanCodecTest, MalformedResultsAreRefused) {
  std::vector<std::byte> good(1000);
  const size_t used = EncodeResult(SomeResult(), good);
  const size_t head = used - Raw(SomeResult().samples).size() - Raw(SomeResult().parts).size();
  std::mt19937_64 random(3);
  StepResult decoded;
  for (size_t bit = 0; bit < head * 8; ++bit) {
    const std::vector<std::byte> exact(good.begin(), good.begin() + static_cast<long>(used));
    std::vector<std::byte> bad = exact;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(DecodeResult(bad, decoded)) << "bit " << bit;
  }
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bad(random() % 300);
    for (std::byte& byte : bad) byte = static_cast<std::byte>(random());
    // As often as not with a believable beginning.
    if (i % 2 == 0) std::copy_n(good.begin(), std::min(bad.size(), random() % head), bad.begin());
    // Once in 256 the last byte of a head copied but for it comes out right.
    if (bad.size() >= head && std::equal(bad.begin(), bad.begin() + head, good.begin())) continue;
    EXPECT_FALSE(DecodeResult(bad, decoded));
  }
}

TEST(PlanCodecTest, APlanIsNoResult) {
  std::vector<std::byte> bytes(1000);
  EncodePlan(StepPlan(), bytes);
  StepResult result;
  EXPECT_FALSE(DecodeResult(bytes, result));
}

}  // namespace
}  // namespace quire
