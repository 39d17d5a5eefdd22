// Packed weights (kernels/packed_row.h) in registers: words become pairs of elements less their
// zero, in the type of the matrix units. Both types hold these differences exactly.
//
// A constant above an element's bits makes a float of it: 128 + e in bf16 and 1024 + e in f16 for 4
// bits, 2^23 + e in f32 for 8 bits as bf16, which has too few bits of its own. The same constant
// plus the zero is subtracted, which is exact.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace quire::cuda {

// What Widen subtracts, of a zero.
template <typename T, int kBits>
__device__ __forceinline__ uint32_t ZeroWord(uint32_t zero) {
  if constexpr (std::is_same_v<T, __half>) return (0x6400u + zero) * 0x10001u;
  return kBits == 4 ? (0x4300u + zero) * 0x10001u : 0x4b000000u + zero;
}

__device__ __forceinline__ uint32_t Subtract(__half, uint32_t a, uint32_t b) {
  uint32_t out;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
// a - b as a * 1 + -b, which is an instruction of its own.
__device__ __forceinline__ uint32_t Subtract(__nv_bfloat16, uint32_t a, uint32_t b) {
  uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(0x3f803f80u), "r"(b ^ 0x80008000u));
  return out;
}

// Pair `pair` of a word, less the zero.
template <typename T, int kBits>
__device__ __forceinline__ uint32_t WidenPair(uint32_t word, int pair, uint32_t zero_word) {
  if constexpr (kBits == 4) {
    constexpr uint32_t kAbove = std::is_same_v<T, __half> ? 0x64006400u : 0x43004300u;
    uint32_t raised;
    // (word & mask) | kAbove in one instruction.
    asm("lop3.b32 %0, %1, %2, %3, 0xea;"
        : "=r"(raised)
        : "r"(word >> (4 * pair)), "n"(0x000f000f), "n"(kAbove));
    return Subtract(T(), raised, zero_word);
  } else if constexpr (std::is_same_v<T, __half>) {
    const uint32_t raised = __byte_perm(word, 0x64646464u, pair == 0 ? 0x4140 : 0x4342);
    return Subtract(T(), raised, zero_word);
  } else {
    const float base = __uint_as_float(zero_word);
    const uint32_t first = __byte_perm(word, 0x4b000000u, 0x7650 | 2 * pair);
    const uint32_t second = __byte_perm(word, 0x4b000000u, 0x7651 | 2 * pair);
    // At most 8 bits of fraction: the upper half of the float is the bf16.
    return __byte_perm(__float_as_uint(__uint_as_float(first) - base),
                       __float_as_uint(__uint_as_float(second) - base), 0x7632);
  }
}

// A pair times a scale, each value rounded once.
__device__ __forceinline__ uint32_t ScalePair(__half, uint32_t pair, float scale) {
  const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&pair));
  const __half2 scaled = __floats2half2_rn(values.x * scale, values.y * scale);
  return *reinterpret_cast<const uint32_t*>(&scaled);
}
__device__ __forceinline__ uint32_t ScalePair(__nv_bfloat16, uint32_t pair, float scale) {
  const float2 values = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  const __nv_bfloat162 scaled = __floats2bfloat162_rn(values.x * scale, values.y * scale);
  return *reinterpret_cast<const uint32_t*>(&scaled);
}

}  // namespace quire::cuda
