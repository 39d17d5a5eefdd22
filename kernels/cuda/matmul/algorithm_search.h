// AlgorithmSearch: finds the fastest algorithm of a product. It times the library's candidates and
// the promising cuts of TileMatMul with weights that are not in the cache, as in service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/matmul/product_choice.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Times products with the weights of `p`. It holds copies of the weights in device memory until it
// is destroyed, enough that no candidate finds its weights in the cache, and random tokens, because
// products of zeros draw less power and run faster than those in service. If the device lacks the
// memory, it times with p's own alone. Must not be used within a capture. Overwrites p.out.
class AlgorithmSearch {
 public:
  AlgorithmSearch(const MatMulParams& p, const ProductMeans& means);
  ~AlgorithmSearch();

  // The fastest algorithm for p's weights and its first `tokens` tokens.
  Choice Fastest(int64_t tokens);

 private:
  struct Candidate;
  // Enqueues the candidate `times` times, each time with another copy of the weights. False if the
  // algorithm does not support p.
  bool Repeat(const Candidate& candidate, int times);
  // Sets the median time of each candidate: in each of an even number of turns it runs `repeats`
  // times.
  void Time(std::vector<Candidate>& candidates, size_t turns, int repeats);

  // Device memory until the end; null if there is none left.
  void* Allocate(int64_t bytes);
  void RandomTokens();
  void CopyWeights();

  MatMulParams p_;
  const ProductMeans means_;
  std::vector<void*> allocated_;
  std::vector<MatMulParams>
      products_;  // with the tokens being timed, one for each copy of the weights
  size_t turn_ = 0;
};

}  // namespace quire::cuda
