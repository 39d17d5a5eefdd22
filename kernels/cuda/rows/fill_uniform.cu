// FillUniform: each element has its own random counter. Gives the bits of the CPU backend.
#include <algorithm>

#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/exact_math.cuh"
#include "kernels/cuda/rows/eight_bit_row.cuh"
#include "kernels/cuda/rows/row_layout.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

// A quad is the four elements of one counter. Two quads make a store of eight.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FillUniformKernel(T* out, int64_t size, uint64_t seed, float amplitude) {
  PdlTrigger();
  PdlWait();
  const int64_t step = int64_t{gridDim.x} * kThreads * 8;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8; i < size; i += step) {
    Eight eight;
#pragma unroll
    for (int quad = 0; quad < 2; ++quad) {
      const Philox4 random = Philox4x32(seed, {{static_cast<uint32_t>(i / 4 + quad), 0, 0, 0}});
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float u = (static_cast<float>(random.word[j]) + 0.5f) * 0x1p-32f;
        eight.at[quad * 4 + j] = __fmul_rn(amplitude, __fsub_rn(2.0f * u, 1.0f));
      }
    }
    if constexpr (kEightBit<T>) {
      *reinterpret_cast<uint2*>(out + i) = PackEightBit<T>(eight, 1.0f);
    } else if (i + 8 <= size) {
      StoreEight(out + i, eight);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (i + j < size) out[i + j] = FromFloat<T>(eight.at[j]);
      }
    }
  }
}

// 16 bytes are the four words of one counter.
__global__ void __launch_bounds__(kThreads)
    FillWordsKernel(uint4* out, int64_t size, uint64_t seed) {
  PdlTrigger();
  PdlWait();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += step) {
    const Philox4 random = Philox4x32(seed, {{static_cast<uint32_t>(i), 0, 0, 0}});
    out[i] = {random.word[0], random.word[1], random.word[2], random.word[3]};
  }
}

}  // namespace

void FillUniform(const FillUniformParams& p, const Device& device) {
  if (p.out.size() == 0) return;
  CHECK_EQ(p.out.row_stride * p.out.dim[0], p.out.size());  // dense
  CHECK_EQ(reinterpret_cast<uintptr_t>(p.out.data) % 16, 0);
  const bool packed = IsPacked(p.out.dtype);
  const int64_t stores = packed ? p.out.bytes() / 16 : CeilDiv<int64_t>(p.out.size(), 8);
  const Grid grid{
      .blocks = std::min(Blocks(stores, kThreads), static_cast<unsigned>(device.num_sms * 8)),
      .threads = kThreads};
  if (packed) {
    CHECK_EQ(p.out.bytes() % 16, 0);
    return Launch(device, grid, FillWordsKernel, p.out.ptr<uint4>(), stores, p.seed);
  }
  const auto launch = [&](auto tag) {
    using T = decltype(tag);
    Launch(device, grid, FillUniformKernel<T>, p.out.ptr<T>(), p.out.size(), p.seed, p.amplitude);
  };
  if (!IsEightBit(p.out.dtype)) return DispatchDevice(p.out.dtype, launch);
  CHECK_EQ(p.out.size() % 8, 0);
  if (p.out.dtype == DType::kI8) return launch(int8_t{});
  launch(__nv_fp8_e4m3{});
}

}  // namespace quire::cuda
