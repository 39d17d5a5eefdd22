// The norm of one row by one block, for the kernels that end in it: the row in registers, one pass
// over memory. The order of the sum depends on the row's length alone: eight elements a thread, the
// lanes of a warp, then the warps.
#pragma once

#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/eight_bit_row.cuh"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Out is T, or __nv_fp8_e4m3 or int8_t with scales.
template <typename T, typename Weight, typename Out = T>
struct RmsArgs {
  const T* x;
  int64_t x_stride;
  T* residual;  // or null
  int64_t residual_stride;
  const Weight* weight;
  Out* out;
  int64_t out_stride;
  RowScales scales;
  int32_t width;
  float eps;
};

template <typename T, typename Weight, typename Out = T>
RmsArgs<T, Weight, Out> ArgsOf(const RmsNormParams& p) {
  return {.x = p.x.ptr<T>(),
          .x_stride = p.x.row_stride,
          .residual = p.residual.ptr<T>(),
          .residual_stride = p.residual.row_stride,
          .weight = p.weight.ptr<Weight>(),
          .out = p.out.ptr<Out>(),
          .out_stride = p.out.row_stride,
          .scales = ScalesOf(p.out),
          .width = static_cast<int32_t>(p.x.dim[1]),
          .eps = p.eps};
}

inline void CheckRmsNorm(const RmsNormParams& p) {
  static_assert(kCudaLimits.max_hidden == 2 * kMaxNormThreads * 8);
  CheckRowsOfEights(p.x);
  CheckOutOfEights(p.x.dtype, p.out);
  CHECK(p.x.dim[0] == p.out.dim[0] && p.x.dim[1] == p.out.dim[1]);
  CHECK_LE(p.x.dim[1], kCudaLimits.max_hidden);
  CHECK_EQ(p.weight.size(), p.x.dim[1]);
  CHECK_EQ(reinterpret_cast<uintptr_t>(p.weight.data) % 16, 0);
  if (p.residual.empty()) return;
  CheckRowsOfEights(p.residual);
  CHECK(p.residual.dtype == p.x.dtype && p.residual.dim[0] == p.x.dim[0]);
}

template <typename Args, int kEights>
__device__ __forceinline__ void LoadWeights(const Args& a, Eight (&weight)[kEights]) {
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    if (at < a.width) weight[i] = LoadEight(a.weight + at);
  }
}

template <typename Args, typename T, int kEights>
__device__ __forceinline__ void LoadResidual(const Args& a, int64_t row,
                                             Packed<T> (&residual)[kEights]) {
  if (a.residual == nullptr) return;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    if (at < a.width) residual[i] = LoadPacked(a.residual + row * a.residual_stride + at);
  }
}

// x = of_row + residual, rounded to T as later reads find it, and written to the residual; without
// a residual, x = of_row. Elements past the row are 0 in of_row.
template <typename Args, typename T, int kEights>
__device__ __forceinline__ void AddResidual(const Args& a, int64_t row,
                                            const Packed<T> (&of_row)[kEights],
                                            const Packed<T> (&residual)[kEights],
                                            Eight (&x)[kEights]) {
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    x[i] = Unpack(of_row[i]);
    if (a.residual == nullptr || at >= a.width) continue;
    const Eight before = Unpack(residual[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) x[i].at[j] = Rounded<T>(before.at[j] + x[i].at[j]);
    StoreEight(a.residual + row * a.residual_stride + at, x[i]);
  }
}

// Writes the norm of the row x. Elements past the row are 0. A barrier must follow before the next
// row.
template <typename T, typename Weight, typename Out, int kEights>
__device__ __forceinline__ void NormRow(const RmsArgs<T, Weight, Out>& a, int64_t row,
                                        const Eight (&weight)[kEights], Eight (&x)[kEights]) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(x[i].at[j], x[i].at[j], squares);
  }
  const float factor = rsqrtf(BlockSum(squares) / static_cast<float>(a.width) + a.eps);
  Out* out = a.out + row * a.out_stride;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    if (at >= a.width) continue;
      // Rounds before the weight, as norms in Hugging Face transformers do.
#pragma unroll
    for (int j = 0; j < 8; ++j) x[i].at[j] = Rounded<T>(x[i].at[j] * factor) * weight[i].at[j];
    if constexpr (!kEightBit<Out>) StoreEight(out + at, x[i]);
  }
  if constexpr (kEightBit<Out>) StoreEightBit<Out>(x, {out, a.width, a.scales, row});
}

}  // namespace quire::cuda
