// The division of a prefill sequence: every span of every tile is in one item, states do not
// overlap, and no span is empty. Needs no device.
#include "kernels/cuda/attention/prefill_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/kernels/cases.h"

namespace quire::cuda {
namespace {

TEST(PrefillPlanTest, CutsContextsOfFewItems) {
  EXPECT_EQ(SpansOf(8, 8192), 16);   // 128 items of 512 tokens
  EXPECT_EQ(SpansOf(8, 32768), 16);  // 128 items of 2048 tokens
  EXPECT_EQ(SpansOf(64, 8192), 2);
  EXPECT_EQ(SpansOf(2, 32768), 64);
  EXPECT_EQ(SpansOf(1, 16384), 32);  // of 512 tokens, the shortest
  EXPECT_EQ(SpansOf(8, 1024), 2);
}

TEST(PrefillPlanTest, LeavesShortContextsAndFullDevicesWhole) {
  for (int32_t items : {1, 8, 100, 264, 5000}) EXPECT_EQ(SpansOf(items, 1023), 1) << items;
  for (int32_t items : {128, 132, 256, 264, 265, 600, 100000}) {
    EXPECT_EQ(SpansOf(items, 8192), 1) << items;
  }
}

struct Case {
  int32_t num_queries, context, group, num_kv_heads, window;
};

std::vector<Case> ManyCases() {
  std::vector<Case> cases = {{17, 8192, 4, 8, 0}, {64, 32768, 4, 8, 0}, {1, 5000, 71, 1, 0}};
  Random random(9);
  for (int i = 0; i < 3000; ++i) {
    const auto context = static_cast<int32_t>(1 + random.Below(40000));
    const int32_t most = std::min<int32_t>(context, 1 + (i % 3 == 0 ? 3000 : 80));
    cases.push_back({static_cast<int32_t>(1 + random.Below(most)), context,
                     static_cast<int32_t>(1 + random.Below(20)),
                     static_cast<int32_t>(1 + random.Below(16)),
                     static_cast<int32_t>(random.Below(2) * (1 + random.Below(9000)))});
  }
  return cases;
}

PrefillSequence PlanOf(const Case& c) {
  return PlanPrefill({.query_begin = 5, .num_queries = c.num_queries, .context = c.context},
                     c.group, c.num_kv_heads, c.window);
}

TEST(PrefillPlanTest, EverySpanIsInOneItem) {
  for (const Case& c : ManyCases()) {
    const PrefillSequence s = PlanOf(c);
    ASSERT_EQ(s.tiles, (c.num_queries * c.group + 127) / 128);
    for (const int32_t states : {1000, kOwnStates}) {
      std::map<std::pair<int32_t, int32_t>, int> taken;  // by first row and span
      for (int32_t at = 0; at < s.tiles * (states == kOwnStates ? 1 : s.spans); ++at) {
        const PrefillTile tile = TileAt(s, at, states, c.num_kv_heads);
        ASSERT_EQ(tile.first_row % kPrefillRows, 0);
        ASSERT_LT(tile.first_row, c.num_queries * c.group);
        ASSERT_EQ(tile.spans, s.spans);
        for (int32_t i = 0; i < tile.num_taken; ++i) {
          ++taken[{tile.first_row, tile.first_span + i}];
        }
      }
      ASSERT_EQ(taken.size(), static_cast<size_t>(s.tiles * s.spans));
      for (const auto& [place, times] : taken) ASSERT_EQ(times, 1);
    }
  }
}

TEST(PrefillPlanTest, StatesDoNotOverlap) {
  for (const Case& c : ManyCases()) {
    const PrefillSequence s = PlanOf(c);
    if (s.spans == 1) {
      ASSERT_EQ(s.AllStateRows(c.num_kv_heads), 0);
      continue;
    }
    std::vector<int32_t> begins;
    for (int32_t at = 0; at < s.tiles * s.spans; ++at) {
      const PrefillTile tile = TileAt(s, at, 1000, c.num_kv_heads);
      ASSERT_GE(tile.state_rows, std::min(kPrefillRows, c.num_queries * c.group - tile.first_row));
      for (int32_t head = 0; head < c.num_kv_heads; ++head) {
        begins.push_back(tile.StateOf(head, tile.first_span));
      }
    }
    std::sort(begins.begin(), begins.end());
    for (size_t i = 0; i < begins.size(); ++i) {
      ASSERT_EQ(begins[i], 1000 + static_cast<int32_t>(i) * s.state_rows);
    }
    ASSERT_EQ(s.AllStateRows(c.num_kv_heads), static_cast<int32_t>(begins.size()) * s.state_rows);
    ASSERT_LE(begins.size(), static_cast<size_t>(kMostItems));
  }
}

// The turns of a tile as the kernel counts them, for heads of either size.
TEST(PrefillPlanTest, NoSpanIsEmpty) {
  for (const Case& c : ManyCases()) {
    const PrefillSequence s = PlanOf(c);
    for (int32_t first_row = 0; first_row < c.num_queries * c.group; first_row += 128) {
      const auto end = [&](int32_t row) {
        return c.context - c.num_queries + 1 + std::min(row / c.group, c.num_queries - 1);
      };
      for (const int32_t tokens : {64, 128}) {
        const int32_t start = c.window > 0 ? std::max(0, end(first_row) - c.window) : 0;
        const int32_t begin = start / tokens * tokens;
        const int32_t turns = (end(first_row + 127) - begin + tokens - 1) / tokens;
        ASSERT_EQ(FirstTurn(turns, s.spans, 0), 0);
        ASSERT_EQ(FirstTurn(turns, s.spans, s.spans), turns);
        for (int32_t span = 0; span < s.spans; ++span) {
          ASSERT_LT(FirstTurn(turns, s.spans, span), FirstTurn(turns, s.spans, span + 1));
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
