// The division of a step's attention: every unit of work is in exactly one range, the ranges at
// both ends of a shared head agree, and chunks depend on the sequence alone. Needs no device.
#include "kernels/cuda/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "tests/kernels/cases.h"

namespace quire::cuda {
namespace {

// The plan of a step as the plan kernel makes it, computed sequence by sequence and range by range.
struct Plan {
  std::vector<DecodeSequence> sequences;
  std::vector<int64_t> cost_begin = {0};
  std::vector<int32_t> unit_begin = {0};
  DecodeSums sums;
  std::vector<DecodeRange> ranges;

  Plan(const std::vector<int32_t>& contexts, int32_t num_kv_heads, int32_t num_ranges,
       int32_t window = 0) {
    for (int32_t context : contexts) {
      const DecodeSequence s =
          PlanDecode({.num_queries = 1, .context = context}, 4, num_kv_heads, window);
      sequences.push_back(s);
      cost_begin.push_back(cost_begin.back() + num_kv_heads * CostOfHead(s));
      unit_begin.push_back(unit_begin.back() + num_kv_heads * s.num_chunks);
    }
    sums = {sequences.data(), cost_begin.data(), unit_begin.data(),
            static_cast<int32_t>(sequences.size()), num_ranges};
    std::vector<int32_t> begins, filled;
    for (int32_t r = 0; r <= num_ranges; ++r) begins.push_back(sums.UnitOf(sums.Begin(r)));
    for (int32_t r = 0; r < num_ranges; ++r) {
      filled.push_back((r > 0 ? filled.back() : 0) + (begins[r + 1] > begins[r] ? 1 : 0));
    }
    for (int32_t r = 0; r < num_ranges; ++r) {
      ranges.push_back(FillRange(sums, {begins.data(), filled.data(), num_ranges}, r, sums.Begin(r),
                                 sums.Begin(r + 1)));
    }
  }
};

std::vector<std::vector<int32_t>> ManyBatches() {
  std::vector<std::vector<int32_t>> batches = {{1},    {64},    {65},        {1024},
                                               {5000}, {40000}, {1, 131072}, {131072, 1, 1, 1}};
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> batch;
    const int64_t size = 1 + random.Below(random.Below(2) == 0 ? 6 : 300);
    const int64_t most = random.Below(3) == 0 ? 30000 : 1500;
    for (int64_t s = 0; s < size; ++s) {
      batch.push_back(static_cast<int32_t>(1 + random.Below(most)));
    }
    batches.push_back(batch);
  }
  return batches;
}

TEST(AttentionPlanTest, EveryUnitIsInOneRange) {
  for (const std::vector<int32_t>& contexts : ManyBatches()) {
    for (int32_t heads : {1, 2, 8, 32}) {
      for (int32_t num_ranges : {132, 264, 396}) {
        const Plan plan(contexts, heads, num_ranges);
        int32_t next = 0;
        for (const DecodeRange& range : plan.ranges) {
          if (range.num_units == 0) continue;
          ASSERT_EQ(plan.sums.UnitOf(range), next);
          ASSERT_LT(range.head, heads);
          ASSERT_LT(range.chunk, plan.sequences[range.sequence].num_chunks);
          next += range.num_units;
        }
        ASSERT_EQ(next, plan.unit_begin.back());
      }
    }
  }
}

// The unit after the one at `at`.
DecodeRange Next(const Plan& plan, int32_t heads, DecodeRange at) {
  if (++at.chunk < plan.sequences[at.sequence].num_chunks) return at;
  if (++at.head < heads) return {.sequence = at.sequence, .head = at.head};
  return {.sequence = at.sequence + 1};
}

// Counts the ranges with a unit of each head and compares.
TEST(AttentionPlanTest, RangesNameTheOwnerAndSharersOfAHead) {
  for (const std::vector<int32_t>& contexts : ManyBatches()) {
    for (int32_t heads : {1, 2, 8}) {
      const Plan plan(contexts, heads, 264);
      std::map<int64_t, std::vector<int32_t>> of_head;  // ranges by first unit of the head
      for (int32_t r = 0; r < 264; ++r) {
        DecodeRange at = plan.ranges[r];
        for (int32_t i = 0; i < plan.ranges[r].num_units; ++i) {
          std::vector<int32_t>& holders = of_head[plan.sums.UnitOf(at) - at.chunk];
          if (holders.empty() || holders.back() != r) holders.push_back(r);
          at = Next(plan, heads, at);
        }
      }
      for (const auto& [first_unit, holders] : of_head) {
        if (holders.size() == 1) continue;
        ASSERT_EQ(plan.ranges[holders[0]].end_sharers, static_cast<int32_t>(holders.size()));
        for (size_t i = 1; i < holders.size(); ++i) {
          const DecodeRange& range = plan.ranges[holders[i]];
          ASSERT_EQ(range.begin_owner, holders[0]);
          ASSERT_EQ(range.begin_sharers, static_cast<int32_t>(holders.size()));
          ASSERT_GT(range.chunk, 0);
        }
      }
    }
  }
}

TEST(AttentionPlanTest, RangeCostsAreBalanced) {
  for (const std::vector<int32_t>& contexts :
       {std::vector<int32_t>(64, 4096), std::vector<int32_t>(256, 1024), {40000, 12000, 300}}) {
    const Plan plan(contexts, 8, 264);
    const int64_t mean = plan.cost_begin.back() / 264;
    int32_t largest_chunk = 0;
    for (const DecodeSequence& s : plan.sequences) largest_chunk = std::max(largest_chunk, s.chunk);
    for (const DecodeRange& range : plan.ranges) {
      int32_t tiles = 0;
      DecodeRange at = range;
      for (int32_t i = 0; i < range.num_units; ++i) {
        const DecodeSequence& s = plan.sequences[at.sequence];
        const int32_t begin = at.chunk * s.chunk;
        tiles += CeilDiv(std::min(s.chunk, s.context - begin), kDecodeTile);
        at = Next(plan, 8, at);
      }
      ASSERT_LE(tiles * kTileCost, mean + largest_chunk / kDecodeTile * (kTileCost + kUnitCost));
    }
  }
}

TEST(AttentionPlanTest, ChunksCoverTheVisibleTokens) {
  for (int32_t window : {0, 1, 100, 4096}) {
    for (int32_t queries : {1, 2, 4}) {
      for (int32_t context = queries; context < 9000; context += 7) {
        const DecodeSequence s =
            PlanDecode({.num_queries = queries, .context = context}, 4, 8, window);
        const int32_t first_seen = window == 0 ? 0 : std::max(0, context - queries + 1 - window);
        ASSERT_EQ(s.start, first_seen);
        ASSERT_EQ(s.first() % 16, 0);
        ASSERT_GT(s.start + 16, s.first());
        ASSERT_EQ(s.chunk % kDecodeTile, 0);
        ASSERT_GE(s.first() + s.num_chunks * s.chunk, context);
        ASSERT_LT(s.first() + (s.num_chunks - 1) * s.chunk, context);
        ASSERT_LE(s.num_chunks, kMaxChunks);
      }
    }
  }
}

TEST(AttentionPlanTest, ChunksOfEightBitsAreWhatACtaTakesAtLeast) {
  for (int32_t tokens : {1, 64, 128, 1024, 9000, 100000}) {
    for (bool wide : {false, true}) {
      const int32_t chunk = ChunkTokens(tokens, 8, 8, {.wide = wide, .eight_bit = true});
      EXPECT_EQ(chunk % (2 * kDecodeTile), 0);
      EXPECT_EQ(chunk, std::max(2 * kDecodeTile, ChunkTokens(tokens, 8, 8, {.wide = wide})));
    }
  }
}

TEST(AttentionPlanTest, ManyQueriesDoubleTheChunk) {
  for (int32_t tokens : {1, 5000, 100000}) {
    EXPECT_EQ(ChunkTokens(tokens, 16, 8), 2 * ChunkTokens(tokens, 8, 8));
  }
}

}  // namespace
}  // namespace quire::cuda
