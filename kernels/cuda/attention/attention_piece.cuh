// Piece: four columns of one row of a softmax state, as a thread folds states and stores results. A
// row of a state in memory is D floats of the sum, the top, the sum of weights, and padding to 16
// bytes.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_tile.cuh"

namespace quire::cuda {

// A head of a sequence as its results are stored: the sequence's first query, and the factor of the
// head's values (ValueScale).
struct ResultHead {
  int query_begin, head;
  float scale;
};

struct Piece {
  float o[4];
  float top, sum;

  __device__ __forceinline__ void Reset() {
    o[0] = o[1] = o[2] = o[3] = sum = 0.0f;
    top = -INFINITY;
  }
  // Products and sums are fused explicitly: the compiler might fuse them in different ways in
  // different places, and the bits of a fold must not depend on the place.
  __device__ __forceinline__ void Fold(const Piece& next) {
    const float both = fmaxf(top, next.top), base = FiniteTop(both);
    const float a = Exp2(top - base), b = Exp2(next.top - base);
#pragma unroll
    for (int i = 0; i < 4; ++i) o[i] = __fmaf_rn(b, next.o[i], __fmul_rn(a, o[i]));
    sum = __fmaf_rn(b, next.sum, __fmul_rn(a, sum));
    top = both;
  }

  // Writes columns [column, column + 4) of a row of a state.
  template <int D>
  __device__ __forceinline__ void Write(float* row, int column) const {
    *reinterpret_cast<float4*>(row + column) = make_float4(o[0], o[1], o[2], o[3]);
    if (column == 0) *reinterpret_cast<float2*>(row + D) = make_float2(top, sum);
  }

  // Stores the result of a row of a sequence, row = query * G + (head in its group).
  template <typename T, typename H>
  __device__ __forceinline__ void Store(const AttentionArgs& a, const ResultHead& of, int row,
                                        int column) const {
    if (!H::Has(a, column)) return;
    const float inverse = Reciprocal(sum) * of.scale;
    T* out = static_cast<T*>(a.out) + (of.query_begin + a.QueryOf(row)) * a.out_stride +
             (of.head * a.group + a.InGroup(row)) * H::Row(a) + column;
    *reinterpret_cast<uint2*>(out) = make_uint2(Pack<T>(o[0] * inverse, o[1] * inverse),
                                                Pack<T>(o[2] * inverse, o[3] * inverse));
  }
};

}  // namespace quire::cuda
