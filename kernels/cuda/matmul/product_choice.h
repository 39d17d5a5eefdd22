// The means that compute products of more than a few tokens, cuBLASLt, TileMatMul and PackedMatMul:
// what each offers for a product, and running a choice of any.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/matmul/algorithm_table.h"
#include "kernels/cuda/matmul/lt_product.h"
#include "kernels/cuda/matmul/tile_cut.h"
#include "kernels/ops.h"

namespace quire::cuda {

struct ProductMeans {
  Device device;
  TileClusters clusters{};
  LtDevice lt;
};

// Whether the library has algorithms for the product: not for scales of blocks, for 8-bit integers
// and for packed weights.
bool LibraryTakes(const MatMulParams& p);
// At most `library` algorithms and at most `cuts` cuts, of each the most promising first. At least
// one: every product that the library does not take must fit TileMatMul, or PackedMatMul.
std::vector<Choice> PromisingChoices(const MatMulParams& p, const ProductMeans& means,
                                     size_t library, size_t cuts);
// Enqueues the product. False if the choice was made for another number of tokens and does not
// support this one.
bool Enqueue(const MatMulParams& p, const Choice& choice, const ProductMeans& means);

}  // namespace quire::cuda
