// LtProduct: one matrix product as cuBLASLt describes it.
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

// The library's handle, with the device memory and the stream of its work.
struct LtDevice {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  cudaStream_t stream = nullptr;
};

// The shape of `p`, with p's own number of tokens.
ProductShape ShapeOf(const MatMulParams& p);

// Its construction takes well under a microsecond and allocates nothing.
class LtProduct {
 public:
  explicit LtProduct(const MatMulParams& p);

  // At most `count` algorithms, the most promising first. Each gives the same bits every time: it
  // adds partial sums in f32 and in a fixed order.
  std::vector<AlgorithmWords> Candidates(const LtDevice& device, int count);
  // Enqueues the product. Fails, for example with CUBLAS_STATUS_NOT_SUPPORTED, if the algorithm
  // does not support it.
  cublasStatus_t Enqueue(const LtDevice& device, const AlgorithmWords& algorithm);

 private:
  const MatMulParams p_;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t w_, x_, out_;
};

}  // namespace quire::cuda
