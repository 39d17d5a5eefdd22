// The time of a cut is that of its busiest block: the bytes that it copies at a multiprocessor's
// rate, or its products at the rate that the kernel reaches. The rates were measured on an H200;
// they only have to bring the best cuts among the first.
#include "kernels/cuda/matmul/tile_cut.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/ceil_div.h"

namespace quire::cuda {
namespace {

constexpr double kBytesPerNs = 44;
// A division of the columns costs barriers of the cluster and the exchange of sums.
constexpr double kSplitNs = 800, kExchangedTokenNs = 10;

// A chunk: its columns, the bytes of a row of w and of a token, and the nanoseconds of its products
// with 128 rows, for each token and for any number of them.
struct Chunk {
  int columns, row_bytes, token_bytes;
  double token_ns, rows_ns;
};
Chunk ChunkOf(DType weights) {
  switch (weights) {
    case DType::kU4: return {kPackedChunk, kPackedChunk / 2, kPackedChunk * 2, 5.8, 150};
    case DType::kU8: return {kPackedChunk, kPackedChunk, kPackedChunk * 2, 5.8, 200};
    case DType::kE4M3: return {kTileChunkBytes, kTileChunkBytes, kTileChunkBytes, 4, 0};
    case DType::kI8: return {kTileChunkBytes, kTileChunkBytes, kTileChunkBytes, 3, 0};
    default: return {kTileChunkBytes / 2, kTileChunkBytes, kTileChunkBytes, 2.9, 0};
  }
}

double Nanoseconds(const TileProduct& p, const TileCut& cut, int clusters) {
  const Chunk chunk = ChunkOf(p.weights);
  const int64_t tiles = CeilDiv<int64_t>(p.n, cut.rows) * CeilDiv<int64_t>(p.tokens, cut.tokens);
  const int64_t chunks = CeilDiv<int64_t>(CeilDiv<int64_t>(p.k, chunk.columns), cut.split);
  const double bytes = (cut.rows * chunk.row_bytes + cut.tokens * chunk.token_bytes) / kBytesPerNs;
  const double products = cut.tokens * chunk.token_ns + chunk.rows_ns;
  const double exchange = cut.split > 1 ? kSplitNs + cut.tokens * kExchangedTokenNs : 0;
  return static_cast<double>(CeilDiv<int64_t>(tiles, clusters)) *
         (static_cast<double>(chunks) * std::max(bytes, products) + exchange);
}

}  // namespace

std::vector<TileCut> PromisingCuts(const TileProduct& p, const TileClusters& clusters,
                                   size_t count) {
  const std::span<const int> token_counts =
      IsPacked(p.weights) ? std::span<const int>(kPackedTileTokens) : kTileTokens;
  const int64_t chunks = CeilDiv<int64_t>(p.k, ChunkOf(p.weights).columns);
  std::vector<std::pair<double, TileCut>> timed;
  for (int tokens : token_counts) {
    for (int rows = kMaxTileRows / 2; rows <= kMaxTileRows; rows += kTileRowMultiple) {
      for (int split = 1; split <= kMaxTileSplit && split <= chunks; ++split) {
        const TileCut cut{rows, tokens, split};
        const int count_of_size = clusters[static_cast<size_t>(split)];
        if (count_of_size > 0) timed.emplace_back(Nanoseconds(p, cut, count_of_size), cut);
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
