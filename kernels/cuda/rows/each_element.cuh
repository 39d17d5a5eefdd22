// EachElement: out = fn(first) or fn(first, second), element by element. Computes in floats and
// rounds once, to 8 bits by rows.
#pragma once

#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/rows/each_row.cuh"
#include "kernels/cuda/rows/row_layout.h"

namespace quire::cuda {

inline constexpr int kElementThreads = 256;

template <typename T>
struct ElementArgs {
  const T* first;
  int64_t first_stride;
  const T* second;  // read by a function of two operands
  int64_t second_stride;
  T* out;
  int64_t out_stride;
  uint32_t width;   // of a row, in eights
  uint32_t eights;  // of the whole output
};

// Each thread takes kUnroll eights of the output, a block's width apart, and issues all their loads
// before it uses the first.
template <typename T, typename Fn, int kUnroll>
__global__ void __launch_bounds__(kElementThreads)
    EachElementKernel(ElementArgs<T> a, const Fn fn) {
  constexpr bool kBoth = Fn::kOperands == 2;
  PdlTrigger();
  PdlWait();
  T* out[kUnroll];
  Packed<T> first[kUnroll], second[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const uint32_t eight = (blockIdx.x * kUnroll + i) * kElementThreads + threadIdx.x;
    const uint32_t row = eight / a.width, column = (eight - row * a.width) * 8;
    out[i] = eight < a.eights ? a.out + row * a.out_stride + column : nullptr;
    if (out[i] == nullptr) continue;
    first[i] = LoadPacked(a.first + row * a.first_stride + column);
    if constexpr (kBoth) second[i] = LoadPacked(a.second + row * a.second_stride + column);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (out[i] == nullptr) continue;
    Eight x = Unpack(first[i]);
    if constexpr (kBoth) {
      const Eight y = Unpack(second[i]);
#pragma unroll
      for (int j = 0; j < 8; ++j) x.at[j] = fn(x.at[j], y.at[j]);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) x.at[j] = fn(x.at[j]);
    }
    StoreEight(out[i], x);
  }
}

// Fn has a device operator() of Fn::kOperands floats, and `second` is empty if that is 1. `out` may
// be one of the operands. All have rows of eights, one shape, and one type or an 8-bit `out`.
template <typename Fn>
void EachElement(const TensorView& first, const TensorView& second, const TensorView& out,
                 const Fn& fn, const Device& device) {
  CHECK_EQ(second.empty(), Fn::kOperands == 1);
  CheckOutOfEights(first.dtype, out);
  for (const TensorView* x : {&first, &second}) {
    if (x->empty()) continue;
    CheckRowsOfEights(*x);
    CHECK(x->dtype == first.dtype && x->dim[0] == out.dim[0] && x->dim[1] == out.dim[1]);
  }
  const int64_t width = out.dim[1] / 8, eights = out.dim[0] * width;
  if (eights == 0) return;
  if (out.dtype == DType::kI8) return EachRow<int8_t>(first, second, out, fn, device);
  if (out.dtype != first.dtype) return EachRow<__nv_fp8_e4m3>(first, second, out, fn, device);
  static_assert(kCudaLimits.max_elements / 8 < int64_t{1} << 31);
  CHECK_LT(eights, int64_t{1} << 31);
  DispatchDevice(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const ElementArgs<T> args{.first = first.ptr<T>(),
                              .first_stride = first.row_stride,
                              .second = second.ptr<T>(),
                              .second_stride = second.row_stride,
                              .out = out.ptr<T>(),
                              .out_stride = out.row_stride,
                              .width = static_cast<uint32_t>(width),
                              .eights = static_cast<uint32_t>(eights)};
    // More eights a thread only if every multiprocessor still has as many threads as it can hold.
    constexpr int kUnroll = 4;
    const auto launch = [&](auto kernel, int unroll) {
      Launch(device,
             {.blocks = Blocks(eights, kElementThreads * unroll), .threads = kElementThreads},
             kernel, args, fn);
    };
    if (eights >= int64_t{device.num_sms} * 2048 * kUnroll) {
      launch(EachElementKernel<T, Fn, kUnroll>, kUnroll);
    } else {
      launch(EachElementKernel<T, Fn, 1>, 1);
    }
  });
}

}  // namespace quire::cuda
