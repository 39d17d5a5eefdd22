// The operations of kernels/ops.h and family_operations.h on the CPU, in files of the same names.
// Each returns when its result is complete. Activations are f32, or 8-bit as the input of a
// product; weights and the KV cache f32, bf16, f16 or 8-bit, weights also packed; norm weights and
// biases f32, bf16 or f16.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/family_operations.h"
#include "kernels/ops.h"
#include "kernels/reading.h"
#include "kernels/step_message.h"

namespace quire::cpu {

// The threads and inner loops of one rank's operations.
struct Cores {
  ThreadPool& pool;
  const VectorKernels& kernels;
};

// Partial results of attention while it spreads one context over threads. The size is fixed for any
// length of context, so that no step takes memory that was not planned. One per rank.
struct AttentionSpace {
  explicit AttentionSpace(int64_t num_floats = kFloats)
      : floats(num_floats), data(std::make_unique_for_overwrite<float[]>(num_floats)) {}

  // 8 MB: three pieces of 64 heads of 128 for each of 64 threads.
  static constexpr int64_t kFloats = int64_t{2} << 20;

  const int64_t floats;
  const std::unique_ptr<float[]> data;  // pages that are never written cost nothing
};

void BeginStep(const BeginStepParams& p);
void EndStep(const EndStepParams& p);
void FillUniform(const FillUniformParams& p, const Cores& cores);
void Embed(const EmbedParams& p, const Cores& cores);
void RmsNorm(const RmsNormParams& p, const Cores& cores);
void MatMul(const MatMulParams& p, const Cores& cores);
void RopeStoreKv(const RopeStoreKvParams& p, const Cores& cores);
void PagedAttention(const PagedAttentionParams& p, const Cores& cores, AttentionSpace& space);
void SiluMul(const SiluMulParams& p, const Cores& cores);
void Quantize(const QuantizeParams& p, const Cores& cores);
void GatherRows(const GatherRowsParams& p, const Cores& cores);
void GatherColumns(const GatherColumnsParams& p, const Cores& cores);
void LayerNorm(const LayerNormParams& p, const Cores& cores);
void AddScaled(const AddScaledParams& p, const Cores& cores);
void Scale(const ScaleParams& p, const Cores& cores);
void Gelu(const GeluParams& p, const Cores& cores);
void Sample(const SampleParams& p, const Cores& cores);
void Score(const ScoreParams& p, const Cores& cores);
void Pool(const PoolParams& p, const Cores& cores);

// Writes the row's elements and its scales (row_scale.h).
void StoreEightBit(const float* row, const TensorView& out, int64_t t);

// RowSink: where an operation writes a row of its result, as floats or as 8-bit elements with the
// row's scales. One for each range of rows, on one thread.
class RowSink {
 public:
  explicit RowSink(const TensorView& out) : out_(out) {
    CHECK(out.dtype == DType::kF32 || IsEightBit(out.dtype));
    if (eight_bit()) Scratch().resize(static_cast<size_t>(out.dim[1]));
  }
  // Row t's floats, to be written, and then finished before the next row.
  float* Begin(int64_t t) const { return eight_bit() ? Scratch().data() : out_.row<float>(t); }
  void Finish(int64_t t) const {
    if (eight_bit()) StoreEightBit(Scratch().data(), out_, t);
  }

 private:
  bool eight_bit() const { return IsEightBit(out_.dtype); }
  static std::vector<float>& Scratch() {
    thread_local std::vector<float> scratch;
    return scratch;
  }

  const TensorView& out_;
};

// Rows in a range that is worth another thread, for rows of `row_cost` nanoseconds: to wake or
// signal a thread costs about a microsecond.
constexpr int64_t RowsPerRange(int64_t row_cost) {
  constexpr int64_t kRangeCost = 4000;
  return row_cost >= kRangeCost ? 1 : kRangeCost / (row_cost < 1 ? 1 : row_cost);
}

// Elements of a vector of weights from index `i` on.
inline Elements ElementsAt(const TensorView& vector, int64_t i) {
  return Elements{vector.ptr<char>() + i * static_cast<int64_t>(SizeOf(vector.dtype)),
                  vector.dtype};
}

// Row `i` of a matrix of weights.
inline Elements RowOf(const TensorView& matrix, int64_t i) {
  return Elements{
      matrix.ptr<char>() + i * matrix.row_stride * static_cast<int64_t>(SizeOf(matrix.dtype)),
      matrix.dtype};
}

}  // namespace quire::cpu
