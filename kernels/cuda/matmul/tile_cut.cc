// The time of a cut is that of its busiest block: the bytes that it copies at a multiprocessor's
// rate, or its products at the rate that the kernel reaches. The rates were measured on an H200;
// they only have to bring the best cuts among the first.
#include "kernels/cuda/matmul/tile_cut.h"

#include <algorithm>
#include <utility>

#include "kernels/ceil_div.h"

namespace quire::cuda {
namespace {

constexpr double kBytesPerNs = 44;
// Nanoseconds for a chunk of 128 rows and one token.
constexpr double kChunkNs = 2.9, kEightBitChunkNs = 4;
// A division of the columns costs barriers of the cluster and the exchange of sums.
constexpr double kSplitNs = 800, kExchangedTokenNs = 10;

double Nanoseconds(const TileProduct& p, const TileCut& cut, int clusters) {
  const int64_t tiles = CeilDiv<int64_t>(p.n, cut.rows) * CeilDiv<int64_t>(p.tokens, cut.tokens);
  const int64_t chunks =
      CeilDiv<int64_t>(CeilDiv<int64_t>(p.row_bytes, kTileChunkBytes), cut.split);
  const double bytes = (cut.rows + cut.tokens) * double{kTileChunkBytes} / kBytesPerNs;
  const double products = cut.tokens * (p.eight_bit ? kEightBitChunkNs : kChunkNs);
  const double exchange = cut.split > 1 ? kSplitNs + cut.tokens * kExchangedTokenNs : 0;
  return static_cast<double>(CeilDiv<int64_t>(tiles, clusters)) *
         (static_cast<double>(chunks) * std::max(bytes, products) + exchange);
}

}  // namespace

std::vector<TileCut> PromisingCuts(const TileProduct& p, const TileClusters& clusters,
                                   size_t count) {
  std::vector<std::pair<double, TileCut>> timed;
  for (int tokens : kTileTokens) {
    for (int rows = kMaxTileRows / 2; rows <= kMaxTileRows; rows += kTileRowMultiple) {
      for (int split = 1; split <= kMaxTileSplit; ++split) {
        const TileCut cut{rows, tokens, split};
        if (clusters[split] == 0 || p.row_bytes <= kTileChunkBytes * (split - 1)) continue;
        timed.emplace_back(Nanoseconds(p, cut, clusters[split]), cut);
      }
    }
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TileCut> cuts;
  for (size_t i = 0; i < std::min(count, timed.size()); ++i) cuts.push_back(timed[i].second);
  return cuts;
}

}  // namespace quire::cuda
