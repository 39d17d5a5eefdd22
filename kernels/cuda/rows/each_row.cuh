// EachRow: EachElement (each_element.cuh) for results of 8 bits, whose rows have scales.
#pragma once

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/rows/eight_bit_row.cuh"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/device_limits.h"

namespace quire::cuda {

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

// The largest value of a row that a cluster holds: each block sends its own to all others.
template <unsigned kParts>
struct MaxOfCluster {
  const Cluster& cluster;
  Mailbox& mailbox;
  float2 (&of_blocks)[kParts];

  __device__ __forceinline__ float operator()(float x) const {
    const float of_block = BlockMax(x);
    cluster.Wait();  // every block has opened its mailbox
    if (threadIdx.x < kParts) {
      cluster.Send(float2{of_block, 0}, &of_blocks[cluster.rank()], mailbox, threadIdx.x);
    }
    mailbox.Await(0);
    float largest = 0.0f;
#pragma unroll
    for (const float2& of : of_blocks) largest = fmaxf(largest, of.x);
    return largest;
  }
};

// The same for a row of 8-bit floats with one scale by a cluster of kParts blocks: a thread has one
// eight of it.
template <typename T, typename Out, typename Fn, unsigned kParts>
__global__ void __launch_bounds__(kMaxNormThreads, 2)
    EachPartKernel(RowArgs<T, Out> a, const Fn fn) {
  __shared__ Mailbox mailbox;
  __shared__ float2 of_blocks[kParts];
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
  const int64_t row = blockIdx.x / kParts;
  const int begin = static_cast<int>(cluster.rank() * blockDim.x * 8);
  const int width = min(a.width - begin, static_cast<int>(blockDim.x * 8));
  Eight x[1];
  ValuesOfRow(a.first + row * a.first_stride + begin, a.second + row * a.second_stride + begin,
              width, fn, x);
  if (begin > 0) a.scales.first = nullptr;  // the first block's to store
  StoreEightBit<Out>(x, {a.out + row * a.out_stride + begin, width, a.scales, row},
                     MaxOfCluster<kParts>{cluster, mailbox, of_blocks});
}

// A wide row is shared: one multiprocessor loads it for as long as the rest of the kernel takes,
// and a block of at most kPartThreads fits beside a product's (docs/adr/0024) or three of its kind.
// For narrower rows the exchange takes longer.
template <typename T, typename Out, typename Fn>
void LaunchParts(const RowArgs<T, Out>& args, int64_t rows, const Fn& fn, const Device& device) {
  constexpr unsigned kMost = 8, kFew = 4;
  constexpr int64_t kPartThreads = 512;
  const int64_t eights = args.width / 8;
  const auto launch = [&](auto kernel, unsigned parts) {
    const Grid grid{.blocks = Blocks(rows * parts, 1),
                    .threads = ThreadsFor(CeilDiv<int64_t>(eights, parts), kMaxNormThreads),
                    .cluster = {parts, 1, 1}};
    Launch(device, grid, kernel, args, fn);
  };
  const bool few_rows = rows * kMost <= device.num_sms;
  if (few_rows || eights > kFew * kPartThreads) {
    launch(EachPartKernel<T, Out, Fn, kMost>, kMost);
  } else {
    launch(EachPartKernel<T, Out, Fn, kFew>, kFew);
  }
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
    if constexpr (!kIntegers<Out>) {  // of which a NaN would show in its block alone
      if (args.width > kMaxNormThreads * 8 && !args.scales.of_runs) {
        return LaunchParts(args, rows, fn, device);
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

}  // namespace quire::cuda
