// TileMatMul: x * w^T for tens to hundreds of tokens, where reading the weights and multiplying
// them take about the same time.
//
// k and the cut fix the order of every sum. So a token's results have the same bits in every batch
// that is cut alike; those of 8-bit integers, whose sums are exact, in any batch.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/matmul/tile_cut.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Call once per process and device, before the first TileMatMul and outside a capture. Returns the
// clusters of TileMatMul that run on the device at the same time.
TileClusters PrepareTileMatMul(const Device& device);
// True if the copy engine can read the rows of x and w, and their scales have a form that the
// kernel knows: a scale for each row, or, except for integers, one for 128 columns of a token and
// of any number of rows of w.
bool FitsTileMatMul(const MatMulParams& p);
// Enqueues a product that fits. Reads w before its predecessor on the stream has ended, so no work
// that is still enqueued may write w.
void TileMatMul(const MatMulParams& p, const TileCut& cut, const TileClusters& clusters,
                const Device& device);

}  // namespace quire::cuda
