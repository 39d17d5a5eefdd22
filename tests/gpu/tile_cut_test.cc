// PromisingCuts: cuts that the kernel can run, and among them those that were fastest on an H200.
#include "kernels/cuda/matmul/tile_cut.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire::cuda {
namespace {

constexpr TileClusters kH200 = {0, 132, 66, 42};

TEST(TileCutTest, EveryCutCanRun) {
  for (const int64_t tokens : {1, 17, 64, 300, 8192}) {
    for (const int64_t n : {8, 1000, 28672}) {
      for (const int64_t k : {32, 160, 8192}) {
        for (const DType dtype : {DType::kBF16, DType::kE4M3, DType::kU4, DType::kU8}) {
          const auto cuts = PromisingCuts({tokens, n, k, dtype}, kH200, 6);
          ASSERT_EQ(cuts.size(), 6u);
          for (const TileCut& cut : cuts) {
            EXPECT_GT(cut.rows, 0);
            EXPECT_LE(cut.rows, kMaxTileRows);
            EXPECT_EQ(cut.rows % kTileRowMultiple, 0);
            EXPECT_EQ(
                std::ranges::count(IsPacked(dtype) ? kPackedTileTokens : kTileTokens, cut.tokens),
                1);
            // Every part of the columns has a chunk.
            const int64_t chunk = dtype == DType::kBF16 ? 64 : 128;
            EXPECT_LE(cut.split, (k + chunk - 1) / chunk);
          }
        }
      }
    }
  }
}

TEST(TileCutTest, ADeviceWithoutClustersDividesNoColumns) {
  for (const TileCut& cut : PromisingCuts({64, 4096, 4096, DType::kE4M3}, {0, 132}, 100)) {
    EXPECT_EQ(cut.split, 1);
  }
}

// The fastest of all cuts in a sweep on an H200, or one within 3 % of it.
TEST(TileCutTest, TheFastestAreAmongThem) {
  struct Measured {
    TileProduct product;
    TileCut fastest;
  };
  const Measured sweep[] = {
      {{32, 28672, 4096, DType::kE4M3}, {112, 32, 1}},
      {{32, 4096, 14336, DType::kE4M3}, {112, 32, 3}},
      {{64, 6144, 4096, DType::kE4M3}, {96, 64, 2}},
      {{64, 4096, 4096, DType::kE4M3}, {112, 64, 3}},
      {{64, 28672, 4096, DType::kBF16}, {112, 64, 1}},
      {{64, 4096, 14336, DType::kBF16}, {112, 64, 3}},
      {{128, 28672, 4096, DType::kE4M3}, {112, 128, 1}},
      {{128, 4096, 14336, DType::kE4M3}, {112, 128, 3}},
      {{256, 6144, 4096, DType::kE4M3}, {112, 128, 1}},
      {{256, 4096, 4096, DType::kE4M3}, {128, 128, 2}},
      {{256, 28672, 4096, DType::kBF16}, {128, 256, 1}},
      {{512, 4096, 14336, DType::kBF16}, {128, 256, 2}},
  };
  for (const Measured& m : sweep) {
    EXPECT_THAT(PromisingCuts(m.product, kH200, 6), ::testing::Contains(m.fastest))
        << m.product.tokens << " tokens, " << m.product.n << " rows";
  }
}

}  // namespace
}  // namespace quire::cuda
