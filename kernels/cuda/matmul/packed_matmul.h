// PackedMatMul: x * w^T for packed w (kernels/packed_row.h) and tens to hundreds of tokens, where
// reading the weights, widening them and multiplying them take about the same time.
//
// k and the cut fix the order of every sum. So a token's results have the same bits in every batch
// that is cut alike.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/matmul/tile_cut.h"
#include "kernels/ops.h"

namespace quire::cuda {

// MatMul multiplies more tokens by expanded weights.
inline constexpr int64_t kMostPackedTokens = 512;

// Call once per process and device, before the first PackedMatMul and outside a capture.
void PreparePackedMatMul();
// Enqueues a product that fits GroupedMatMul but for its number of tokens. Reads w before its
// predecessor on the stream has ended, so no work that is still enqueued may write w. `clusters` as
// of PrepareTileMatMul.
void PackedMatMul(const MatMulParams& p, const TileCut& cut, const TileClusters& clusters,
                  const Device& device);

}  // namespace quire::cuda
