// The operations of kernels/ops.h on the CPU, one function per file of the same name. Activations
// are f32; weights, norm weights, biases and the KV cache f32, bf16 or f16.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/ops.h"

namespace quire::cpu {

// What an operation of one rank computes with.
struct Cores {
  ThreadPool& pool;
  const VectorKernels& kernels;
};

void Embed(const EmbedParams& p, const Cores& cores);
void RmsNorm(const RmsNormParams& p, const Cores& cores);
void MatMul(const MatMulParams& p, const Cores& cores);
void RopeStoreKv(const RopeStoreKvParams& p, const Cores& cores);
void PagedAttention(const PagedAttentionParams& p, const Cores& cores);
void SiluMul(const SiluMulParams& p, const Cores& cores);
void GatherRows(const GatherRowsParams& p, const Cores& cores);
void Sample(const SampleParams& p, const Cores& cores);

// Rows of `row_cost` nanoseconds each that make a range worth handing to another thread: waking or
// signalling one costs about a microsecond.
constexpr int64_t RowsPerRange(int64_t row_cost) {
  constexpr int64_t kRangeCost = 4000;
  return row_cost >= kRangeCost ? 1 : kRangeCost / (row_cost < 1 ? 1 : row_cost);
}

// Row `i` of a matrix of weights.
inline Elements RowOf(const TensorView& matrix, int64_t i) {
  return Elements{
      matrix.ptr<char>() + i * matrix.row_stride * static_cast<int64_t>(SizeOf(matrix.dtype)),
      matrix.dtype};
}

}  // namespace quire::cpu
