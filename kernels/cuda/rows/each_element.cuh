// EachElement: out = fn(first) or fn(first, second), element by element. Computes in floats and
// rounds once, to 8 bits by rows.
#pragma once

#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/rows/eight_bit_row.cuh"
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

// A row of 8-bit elements by one block, or by a cluster: all its values lie in registers until its
// scale is known.
template <typename T, typename Out>
struct RowArgs {
  const T* first;
  int64_t first_stride;
  const T* second;
  int64_t second_stride;
  Out* out;
  int64_t out_stride;
  RowScales scales;
  int32_t width;
};

// The values of a row from `first` and `second` on, `width` of them; zeros past those.
template <typename T, typename Fn, int kEights>
__device__ __forceinline__ void ValuesOfRow(const T* first, const T* second, int width,
                                            const Fn& fn, Eight (&x)[kEights]) {
  constexpr bool kBoth = Fn::kOperands == 2;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    x[i] = {};
    if (at >= width) continue;
    x[i] = LoadEight(first + at);
    Eight y = {};
    if constexpr (kBoth) y = LoadEight(second + at);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if constexpr (kBoth) {
        x[i].at[j] = fn(x[i].at[j], y.at[j]);
      } else {
        x[i].at[j] = fn(x[i].at[j]);
      }
    }
  }
}

template <typename T, typename Out, typename Fn, int kEights>
__global__ void __launch_bounds__(kMaxNormThreads) EachRowKernel(RowArgs<T, Out> a, const Fn fn) {
  PdlTrigger();
  PdlWait();
  const int64_t row = blockIdx.x;
  Eight x[kEights];
  ValuesOfRow(a.first + row * a.first_stride, a.second + row * a.second_stride, a.width, fn, x);
  StoreEightBit<Out>(x, {a.out + row * a.out_stride, a.width, a.scales, row});
}

// Blocks, one cluster, that share a wide row where rows are few: a single multiprocessor loads it
// for as long as the rest of the kernel takes. For narrower rows their exchange takes longer.
inline constexpr unsigned kRowParts = 8;

// The largest value of a row that a cluster holds: each block sends its own to all others.
struct MaxOfCluster {
  const Cluster& cluster;
  Mailbox& mailbox;
  float2 (&of_blocks)[kRowParts];

  __device__ __forceinline__ float operator()(float x) const {
    const float of_block = BlockMax(x);
    cluster.Wait();  // every block has opened its mailbox
    if (threadIdx.x < kRowParts) {
      cluster.Send(float2{of_block, 0}, &of_blocks[cluster.rank()], mailbox, threadIdx.x);
    }
    mailbox.Await(0);
    float largest = 0.0f;
#pragma unroll
    for (const float2& of : of_blocks) largest = fmaxf(largest, of.x);
    return largest;
  }
};

// The same for a row of 8-bit floats with one scale, of which this block has `blockDim.x` eights.
template <typename T, typename Out, typename Fn>
__global__ void __launch_bounds__(kMaxNormThreads) EachPartKernel(RowArgs<T, Out> a, const Fn fn) {
  __shared__ Mailbox mailbox;
  __shared__ float2 of_blocks[kRowParts];
  PdlTrigger();
  const Cluster cluster;
  if (threadIdx.x == 0) {
    mailbox.Open();
    FenceBarriers();
    mailbox.Expect(sizeof of_blocks);
  }
  __syncthreads();
  cluster.Arrive();
  PdlWait();
  const int64_t row = blockIdx.x / kRowParts;
  const int begin = static_cast<int>(cluster.rank() * blockDim.x * 8);
  const int width = min(a.width - begin, static_cast<int>(blockDim.x * 8));
  Eight x[1];
  ValuesOfRow(a.first + row * a.first_stride + begin, a.second + row * a.second_stride + begin,
              width, fn, x);
  if (begin > 0) a.scales.first = nullptr;  // the first block's to store
  StoreEightBit<Out>(x, {a.out + row * a.out_stride + begin, width, a.scales, row},
                     MaxOfCluster{cluster, mailbox, of_blocks});
}

template <typename Out, typename Fn>
void EachRow(const TensorView& first, const TensorView& second, const TensorView& out, const Fn& fn,
             const Device& device) {
  constexpr int kMostEights = 4;
  static_assert(kCudaLimits.max_eight_bit_width == kMostEights * kMaxNormThreads * 8);
  CHECK_LE(out.dim[1], kCudaLimits.max_eight_bit_width);
  DispatchHalf(first.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowArgs<T, Out> args{.first = first.ptr<T>(),
                               .first_stride = first.row_stride,
                               .second = second.ptr<T>(),
                               .second_stride = second.row_stride,
                               .out = out.ptr<Out>(),
                               .out_stride = out.row_stride,
                               .scales = ScalesOf(out),
                               .width = static_cast<int32_t>(out.dim[1])};
    const int64_t rows = out.dim[0], eights = out.dim[1] / 8;
    if constexpr (!kIntegers<Out>) {  // a NaN of integers would show in its block alone
      const bool few = rows * kRowParts <= device.num_sms;
      if (few && eights > kMaxNormThreads && !args.scales.of_runs) {
        const Grid grid{.blocks = Blocks(rows * kRowParts, 1),
                        .threads = ThreadsFor(CeilDiv<int64_t>(eights, kRowParts), kMaxNormThreads),
                        .cluster = {kRowParts, 1, 1}};
        return Launch(device, grid, EachPartKernel<T, Out, Fn>, args, fn);
      }
    }
    const auto launch = [&](auto kernel, int64_t of_thread) {
      const unsigned threads = ThreadsFor(CeilDiv(eights, of_thread), kMaxNormThreads);
      Launch(device, {.blocks = Blocks(rows, 1), .threads = threads}, kernel, args, fn);
    };
    if (eights <= kMaxNormThreads) return launch(EachRowKernel<T, Out, Fn, 1>, 1);
    if (eights <= 2 * kMaxNormThreads) return launch(EachRowKernel<T, Out, Fn, 2>, 2);
    launch(EachRowKernel<T, Out, Fn, kMostEights>, kMostEights);
  });
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
