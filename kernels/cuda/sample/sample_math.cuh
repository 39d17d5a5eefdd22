// The sampler's numbers in device code: masses, and integer keys in the order of the values that
// they encode. Sums and maxima over threads are of integers, so their order does not matter.
#pragma once

#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/exact_math.cuh"

namespace quire::cuda {

inline constexpr uint32_t kAllLanes = 0xffffffffu;
inline constexpr float kInfinity = __builtin_inff();

// The mass floor(ExactExp(z) * 2^40) of a token with scaled logit z <= 0, before the floor. The
// mass is 0 at -40 and below, so z is clamped there; then ExactExp needs only its core, with 2^40
// added to the exponent.
__device__ __forceinline__ float WeightOf(float z) {
  constexpr float kRound = kExpRound + 40.0f;
  const float x = fmaxf(z, -40.0f);
  const float t = __fmaf_rn(x, 1.44269502f, kRound);
  const float e = ExactExpOf(x, t - kRound);
  return __uint_as_float((__float_as_uint(t) << 23) + __float_as_uint(e));
}
__device__ __forceinline__ uint64_t MassOf(float z) { return static_cast<uint64_t>(WeightOf(z)); }
// The sum of the masses of four tokens. Conversions to 64 bits are slow, and most tokens do not
// need them.
__device__ __forceinline__ uint64_t MassOf(const float4& z) {
  const float4 w = {WeightOf(z.x), WeightOf(z.y), WeightOf(z.z), WeightOf(z.w)};
  if (fmaxf(fmaxf(w.x, w.y), fmaxf(w.z, w.w)) < 0x1p30f) {
    return static_cast<uint32_t>(w.x) + static_cast<uint32_t>(w.y) + static_cast<uint32_t>(w.z) +
           static_cast<uint32_t>(w.w);
  }
  return static_cast<uint64_t>(w.x) + static_cast<uint64_t>(w.y) + static_cast<uint64_t>(w.z) +
         static_cast<uint64_t>(w.w);
}

// Divisor: quotients by one divisor, correctly rounded as in IEEE division.
struct Divisor {
  float value, reciprocal;
  bool plain;  // so far from the limits that Quotient cannot underflow or overflow

  __device__ explicit Divisor(float divisor)
      : value(divisor),
        reciprocal(1.0f / divisor),
        plain(divisor > 0x1p-40f && divisor < 0x1p40f) {}

  // From a correctly rounded reciprocal and two corrections by the exact remainder, as compilers
  // expand a division.
  __device__ __forceinline__ float Quotient(float x) const {
    float q = x * reciprocal;
    q = __fmaf_rn(__fmaf_rn(-value, q, x), reciprocal, q);
    return __fmaf_rn(__fmaf_rn(-value, q, x), reciprocal, q);
  }
  // The quotients of four x <= 0.
  __device__ __forceinline__ float4 Divide(const float4& x) const {
    const float least = fminf(fminf(x.x, x.y), fminf(x.z, x.w));
    const float most = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
    if (plain && least > -0x1p60f && most < -0x1p-60f) {
      return {Quotient(x.x), Quotient(x.y), Quotient(x.z), Quotient(x.w)};
    }
    return {x.x / value, x.y / value, x.z / value, x.w / value};
  }
};

// z <= 0 as an integer that grows as z falls; equal for equal z.
__device__ __forceinline__ uint32_t KeyOf(float z) { return __float_as_uint(z) & 0x7fffffffu; }
__device__ __forceinline__ float FromKey(uint32_t key) { return -__uint_as_float(key); }
inline constexpr uint32_t kLastKey = 0x7f800000u;  // of -infinity

// The larger of the two; NaN if one is NaN.
__device__ __forceinline__ float LargerOrNan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// A float that is not NaN as an integer of the same order. Both zeros give the same integer.
__device__ __forceinline__ uint32_t Ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}
__device__ __forceinline__ float FromOrdered(uint32_t ordered) {
  return __uint_as_float(ordered ^ (ordered >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// A token with its score as one integer. The largest integer is the best score, and of equal scores
// the lowest token.
__device__ __forceinline__ uint64_t Scored(float score, uint32_t token) {
  return uint64_t{Ordered(score)} << 32 | static_cast<uint32_t>(~token);
}
__device__ __forceinline__ uint32_t TokenOf(uint64_t scored) {
  return ~static_cast<uint32_t>(scored);
}
__device__ __forceinline__ float ScoreOf(uint64_t scored) {
  return FromOrdered(static_cast<uint32_t>(scored >> 32));
}

__device__ __forceinline__ uint64_t Larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// Sums: whole numbers that a pass over the row adds up, and the largest of another.
struct Sums {
  uint64_t count, first, second;
  uint64_t most;
};

// Maxima and a sum over the 32 lanes, by the instructions that reduce 32-bit words.
__device__ __forceinline__ uint64_t WarpLargest(uint64_t x) {
  const auto high = static_cast<uint32_t>(x >> 32);
  const uint32_t top = __reduce_max_sync(kAllLanes, high);
  const uint32_t low = high == top ? static_cast<uint32_t>(x) : 0;
  return uint64_t{top} << 32 | __reduce_max_sync(kAllLanes, low);
}
__device__ __forceinline__ float WarpTop(float x) {
  return FromOrdered(__reduce_max_sync(kAllLanes, Ordered(x)));
}
// Sums parts of 22 bits, whose sums fit into a word.
__device__ __forceinline__ uint64_t WarpTotal(uint64_t x) {
  constexpr int kBits = 22;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  const uint32_t low = __reduce_add_sync(kAllLanes, static_cast<uint32_t>(x) & kMask);
  const uint32_t middle = __reduce_add_sync(kAllLanes, static_cast<uint32_t>(x >> kBits) & kMask);
  const uint32_t high = __reduce_add_sync(kAllLanes, static_cast<uint32_t>(x >> (2 * kBits)));
  return low + (uint64_t{middle} << kBits) + (uint64_t{high} << (2 * kBits));
}

// The binary logarithm, approximated by the special function unit.
__device__ __forceinline__ float RoughLog2(float x) {
  float log;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log) : "f"(x));
  return log;
}

}  // namespace quire::cuda
