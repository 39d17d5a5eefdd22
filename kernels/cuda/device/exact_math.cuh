// sampling_math.h for the device. Files that include this are compiled without contraction of
// products and sums, so that only what the source fuses is fused: the same bits as on the CPU.
#pragma once

#include <cstdint>

namespace quire::cuda {

// The compiler makes more than one instruction of uint64_t{a} * b.
__device__ __forceinline__ uint64_t WideProduct(uint32_t a, uint32_t b) {
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

}  // namespace quire::cuda

#define QUIRE_EXACT __device__ __forceinline__
#define QUIRE_WIDE_PRODUCT(a, b) ::quire::cuda::WideProduct(a, b)
#include "kernels/sampling_math.h"
