// Collectives: exchanges between the ranks of one tensor-parallel group. Every rank of the group
// makes the same calls in the same order with tensors of the same shapes, each from its own thread.
// Sums are added in rank order, so that every rank holds the same bits. Sums through NCCL have
// equal bits on every rank too, but NCCL's order (kernels/cuda/group/communicator.h).
//
// In a group of one rank a sum is x itself, and rows stay where they are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"

namespace quire {

// A rank and the size of its group.
struct RankOf {
  int32_t rank = 0;
  int32_t ranks = 1;
};

// A matrix of `num_rows` split by rows: the most that a rank has, and those of one rank.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};
inline int64_t MostRows(int64_t num_rows, int32_t ranks) {
  return CeilDiv<int64_t>(num_rows, ranks);
}
inline RowRange RowsOf(int32_t rank, int32_t ranks, int64_t num_rows) {
  const int64_t most = MostRows(num_rows, ranks);
  const int64_t begin = std::min(rank * most, num_rows);
  return {begin, std::min(most, num_rows - begin)};
}

// The draws of a group whose ranks divide the rows.
struct ShareSamplesParams {
  const SampleJob* jobs;  // [num_rows]
  SampleResult* results;  // [num_rows], those of this rank's rows filled
  int32_t num_rows;
};

class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual RankOf group() const = 0;
  int32_t rank() const { return group().rank; }
  int32_t ranks() const { return group().ranks; }
  // x = sum over ranks of x. x is [T, H] and dense.
  virtual void AllReduceSum(TensorView x) = 0;
  // p.x = sum over ranks of p.x, rounded to its type, then RmsNorm(p), as one operation. Without
  // aliasing by p.out, p.x is undefined afterwards. p has a residual.
  virtual void SumRmsNorm(const RmsNormParams& p) = 0;
  // Turns a matrix split by columns into one split by rows. x is [R, n], this rank's columns; out
  // is [MostRows, n * ranks], all columns of this rank's RowsOf, the ranks' columns side by side.
  // Both are dense; out is memory of DeviceMemory::AllocateShared.
  virtual void ColumnsToRows(TensorView x, TensorView out) = 0;
  // On entry `results` has this rank's RowsOf, on return all rows, on every rank. Writes every
  // token to its job's `drawn`.
  virtual void ShareSamples(const ShareSamplesParams& p) = 0;
};

}  // namespace quire
