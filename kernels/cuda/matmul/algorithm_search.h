// AlgorithmSearch: finds the fastest cuBLASLt algorithm of a product by timing the library's own
// candidates, with the weights out of the cache as they are in service.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/matmul/lt_product.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Times products with the weights of `p`. While it lives it holds copies of them in device memory,
// enough that no candidate finds them in the cache; if the device lacks the memory, it times with
// p's own alone. Must not be used within a capture. Overwrites p.out.
class AlgorithmSearch {
 public:
  AlgorithmSearch(const MatMulParams& p, const LtDevice& device);
  ~AlgorithmSearch();

  // The choice for p's weights and its first `tokens` tokens.
  Choice Fastest(int64_t tokens);

 private:
  struct Candidate;
  // Enqueues the candidate `times` times, each with other weights; false if it does not take p.
  bool Repeat(const Candidate& candidate, int times);
  void Time(std::vector<Candidate>& candidates, int times);

  const MatMulParams p_;
  const LtDevice device_;
  void* scratch_ = nullptr;
  std::vector<MatMulParams> products_;  // of the tokens at hand, one for each copy of the weights
  size_t turn_ = 0;
};

}  // namespace quire::cuda
