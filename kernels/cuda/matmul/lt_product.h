// LtProduct: one matrix product in the words of cuBLASLt.
//
// The library's matrices are column-major: our x [T, k] is its second operand [k, T], our w [n, k]
// its first, transposed, and our out [T, n] its result [n, T].
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda/matmul/algorithm_table.h"
#include "kernels/ops.h"

namespace quire::cuda {

// The handle of the library with the device memory and the stream it works in.
struct LtDevice {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  cudaStream_t stream = nullptr;
};

// `p` with alignments and types as ProductShape has them, for p's own number of tokens.
ProductShape ShapeOf(const MatMulParams& p);

// Costs well under a microsecond to make and allocates nothing.
class LtProduct {
 public:
  explicit LtProduct(const MatMulParams& p);

  // At most `count` algorithms, the likeliest first. Each gives the same bits every time: none adds
  // partial sums in the type of the output, or in an order that is not fixed.
  std::vector<AlgorithmWords> Candidates(const LtDevice& device, int count);
  // Enqueues; CUBLAS_STATUS_NOT_SUPPORTED, say, if the algorithm does not take this product.
  cublasStatus_t Enqueue(const LtDevice& device, const AlgorithmWords& algorithm);

 private:
  const MatMulParams p_;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t w_, x_, out_;
};

}  // namespace quire::cuda
