// SiluMul: the gate of a SwiGLU feed-forward layer. Computes in floats and rounds once.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct SiluArgs {
  const T* gate_up;
  int64_t stride;
  T* out;
  int64_t out_stride;
  uint32_t width;   // I / 8
  uint32_t eights;  // of the whole output
};

// g / (1 + e^-g) to a few units in the last place of a float; -0 where e^-g overflows.
__device__ __forceinline__ float Silu(float g) { return __fdividef(g, 1.0f + __expf(-g)); }

// Each thread takes kUnroll eights of the output, a block's width apart, and issues all their loads
// before it uses the first.
template <typename T, int kUnroll>
__global__ void __launch_bounds__(kThreads) SiluMulKernel(SiluArgs<T> a) {
  PdlTrigger();
  PdlWait();
  T* out[kUnroll];
  Packed<T> gate[kUnroll], up[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const uint32_t eight = (blockIdx.x * kUnroll + i) * kThreads + threadIdx.x;
    const uint32_t row = eight / a.width, column = (eight - row * a.width) * 8;
    out[i] = eight < a.eights ? a.out + row * a.out_stride + column : nullptr;
    if (out[i] == nullptr) continue;
    const T* from = a.gate_up + row * a.stride + column;
    gate[i] = LoadPacked(from);
    up[i] = LoadPacked(from + a.width * 8);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    if (out[i] == nullptr) continue;
    const Eight g = Unpack(gate[i]);
    Eight product = Unpack(up[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) product.at[j] *= Silu(g.at[j]);
    StoreEight(out[i], product);
  }
}

}  // namespace

void SiluMul(const SiluMulParams& p, const Device& device) {
  CheckRowsOfEights(p.gate_up);
  CheckRowsOfEights(p.out);
  CHECK(p.gate_up.dtype == p.out.dtype && p.gate_up.dim[0] == p.out.dim[0]);
  CHECK_EQ(p.gate_up.dim[1], 2 * p.out.dim[1]);
  const int64_t width = p.out.dim[1] / 8, eights = p.out.dim[0] * width;
  if (eights == 0) return;
  static_assert(kCudaLimits.max_gated / 8 < int64_t{1} << 31);
  CHECK_LT(eights, int64_t{1} << 31);
  DispatchDevice(p.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const SiluArgs<T> args{.gate_up = p.gate_up.ptr<T>(),
                           .stride = p.gate_up.row_stride,
                           .out = p.out.ptr<T>(),
                           .out_stride = p.out.row_stride,
                           .width = static_cast<uint32_t>(width),
                           .eights = static_cast<uint32_t>(eights)};
    // More eights a thread only if every multiprocessor still has as many threads as it can hold.
    constexpr int kUnroll = 4;
    if (eights >= int64_t{device.num_sms} * 2048 * kUnroll) {
      Launch(device, {.blocks = Blocks(eights, kThreads * kUnroll), .threads = kThreads},
             SiluMulKernel<T, kUnroll>, args);
    } else {
      Launch(device, {.blocks = Blocks(eights, kThreads), .threads = kThreads}, SiluMulKernel<T, 1>,
             args);
    }
  });
}

}  // namespace quire::cuda
