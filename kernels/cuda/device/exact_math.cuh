// sampling_math.h for device code. Files that include this are compiled with --fmad=false, so that
// the compiler fuses no product with a sum: the bits are those of the CPU.
#pragma once

#include <cstdint>

namespace quire::cuda {

// One instruction, where the compiler makes several of uint64_t{a} * b.
__device__ __forceinline__ uint64_t WideProduct(uint32_t a, uint32_t b) {
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

}  // namespace quire::cuda

#define QUIRE_EXACT __device__ __forceinline__
#define QUIRE_WIDE_PRODUCT(a, b) ::quire::cuda::WideProduct(a, b)
#include "kernels/sampling_math.h"
