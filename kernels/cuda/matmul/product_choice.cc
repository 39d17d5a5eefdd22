// The library takes any alignment, TileMatMul scales of blocks and integers; most products have
// both. Packed weights have PackedMatMul.
#include "kernels/cuda/matmul/product_choice.h"

#include "kernels/check.h"
#include "kernels/cuda/matmul/packed_matmul.h"
#include "kernels/cuda/matmul/tile_matmul.h"

namespace quire::cuda {

bool LibraryTakes(const MatMulParams& p) {
  return !IsPacked(p.w.dtype) && p.w.scale_columns == 0 && p.w.dtype != DType::kI8;
}

std::vector<Choice> PromisingChoices(const MatMulParams& p, const ProductMeans& means,
                                     size_t library, size_t cuts) {
  const TileProduct product{
      .tokens = p.x.dim[0], .n = p.w.dim[0], .k = p.w.dim[1], .weights = p.w.dtype};
  std::vector<Choice> choices;
  const bool of_library = LibraryTakes(p);
  if (of_library) {
    for (const AlgorithmWords& words :
         LtProduct(p).Candidates(means.lt, static_cast<int>(library))) {
      choices.push_back({.algorithm = words});
    }
  }
  const bool few = p.x.dim[0] <= kMostTileTokens;
  if (IsPacked(p.w.dtype) || (FitsTileMatMul(p) && (!of_library || few))) {
    for (const TileCut& cut : PromisingCuts(product, means.clusters, cuts)) {
      choices.push_back({.cut = cut});
    }
  }
  CHECK(!choices.empty());
  return choices;
}

bool Enqueue(const MatMulParams& p, const Choice& choice, const ProductMeans& means) {
  if (choice.cut.empty()) {
    return LtProduct(p).Enqueue(means.lt, choice.algorithm) == CUBLAS_STATUS_SUCCESS;
  }
  if (IsPacked(p.w.dtype)) {
    PackedMatMul(p, choice.cut, means.clusters, means.device);
  } else {
    TileMatMul(p, choice.cut, means.clusters, means.device);
  }
  return true;
}

}  // namespace quire::cuda
