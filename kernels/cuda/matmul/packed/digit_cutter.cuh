// DigitCutter: activations as integers, for products with packed weights.
//
// An activation is four signed digits of 8 bits beside a power of two, which the activations of a
// token share in a chunk of 128 columns. The largest of them has 30 bits, so each is rounded to
// 2^-26 of the largest at most, and not at all where its own bits end above that. Matrix units
// multiply the digits by bytes of weights, and their sums are exact: no order changes a bit.
//
// The eight columns of digits of two tokens are a tile: the second operand of the matrix units.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/packed/digit_matmul.h"
#include "kernels/cuda/matmul/packed/packed_bands.cuh"

namespace quire::cuda {

inline constexpr int kDigits = 4;                     // of an activation
inline constexpr int kDigitTokens = kMaxDigitTokens;  // of a tile

// The second operand of each 32 columns of a tile's chunk, a lane's part.
using TileDigits = uint32_t[kChunkSpans][2];

// For a lane's two columns of a tile's sums, a lower and a higher digit of a token: minus the sum
// of a group's activations, and the scale of both.
template <int kGroups>
struct TileScale {
  int32_t minus_sum[kGroups];
  float scale;
};

// A lane's activations of a tile's chunk: two pairs of neighbours of each token.
struct RawTile {
  uint32_t pairs[kDigitTokens][2];
};

// Where a warp's lanes exchange a tile's digits: those of spans 2i and 2i + 1 are words
// [column][quarter][4] from word i * kDigitPitch on, a pitch at which stores hit 32 banks.
inline constexpr int kDigitPitch = 128 + 16;
inline constexpr int kTileWords = 2 * kDigitPitch;

// The biased exponent, as of a float, of the largest of a warp's activations; 255: one is no
// number.
template <typename T>
__device__ __forceinline__ uint32_t LargestExponent(const uint32_t (&pairs)[2]) {
  constexpr uint32_t kSizes = 0x7fff7fff;
  const uint32_t both = __vmaxu2(pairs[0] & kSizes, pairs[1] & kSizes);
  const uint32_t largest = __reduce_max_sync(0xffffffffu, max(both, both << 16));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return largest >> 23;
  const uint32_t exponent = largest >> 26;
  return exponent == 31 ? 255 : exponent + 112;
}

__device__ __forceinline__ float PowerOfTwo(uint32_t biased) {
  return __uint_as_float(biased << 23);
}

__device__ __forceinline__ float2 Values(__nv_bfloat16, uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
__device__ __forceinline__ float2 Values(__half, uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// out[d]: byte d of each of the four words.
__device__ __forceinline__ void GatherBytes(const uint32_t (&words)[4], uint32_t (&out)[kDigits]) {
  const uint32_t low[2] = {__byte_perm(words[0], words[1], 0x5140),
                           __byte_perm(words[2], words[3], 0x5140)};
  const uint32_t high[2] = {__byte_perm(words[0], words[1], 0x7362),
                            __byte_perm(words[2], words[3], 0x7362)};
  out[0] = __byte_perm(low[0], low[1], 0x5410);
  out[1] = __byte_perm(low[0], low[1], 0x7632);
  out[2] = __byte_perm(high[0], high[1], 0x5410);
  out[3] = __byte_perm(high[0], high[1], 0x7632);
}

// Of one warp, which gives it kTileWords words of shared memory. Elements are those
// of T, beside weights of kBits.
template <typename T, int kBits, int kGroups>
class DigitCutter {
 public:
  __device__ DigitCutter(const T* x, int64_t stride, int tokens, int k, uint32_t* words)
      : x_(x), stride_(stride), tokens_(tokens), k_(k), words_(SharedAddress(words)) {}

  // Loads a chunk, zeros past the last column. A lane's elements are those of a word of
  // weights of 8 bits, or of 4 bits those in one half of each byte of a word.
  __device__ __forceinline__ RawTile Load(int chunk) const {
    const int lane = threadIdx.x % 32;
    const int span = chunk * kChunkColumns + lane / 8 * kPackedColumns;
    const T* from = x_ + span + lane % 4 * 2 + lane / 4 % 2 * (kBits == 4 ? 8 : 16);
    RawTile raw;
#pragma unroll
    for (int t = 0; t < kDigitTokens; ++t) {
      const bool within = span < k_ && t < tokens_;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const T* const at = from + i * (kBits == 4 ? 16 : 8);
        raw.pairs[t][i] = within ? *reinterpret_cast<const uint32_t*>(at) : 0;
      }
      from += stride_;
    }
    return raw;
  }

  // Cuts a tile and leaves its digits for Read, with __syncwarp between. Gives the scale of a
  // lane's sums. Without a second token its columns keep any digits; their sums belong to no token.
  __device__ __forceinline__ float Cut(const RawTile& raw) const {
    uint32_t exponents[kDigitTokens] = {};
#pragma unroll
    for (int t = 0; t < kDigitTokens; ++t) {
      if (t >= tokens_) break;
      exponents[t] = max(LargestExponent<T>(raw.pairs[t]), kLeastExponent);
      StoreDigits(raw.pairs[t], exponents[t], t);
    }
    const uint32_t exponent = threadIdx.x % 4 < 2 ? exponents[0] : exponents[1];
    return exponent == 255 ? __uint_as_float(0x7fc00000)  // NaN
                           : PowerOfTwo(127 - kInteger + exponent + threadIdx.x % 2 * 16);
  }
  __device__ __forceinline__ void Read(TileDigits& digits) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int word = i * kDigitPitch + threadIdx.x % 32 * 4;
      const uint4 four = LoadVector(words_ + word * 4);
      digits[2 * i][0] = four.x;
      digits[2 * i][1] = four.y;
      digits[2 * i + 1][0] = four.z;
      digits[2 * i + 1][1] = four.w;
    }
  }
  // Minus the sums of each group's activations, which are products with ones.
  __device__ __forceinline__ void Sum(const TileDigits& digits, int32_t (&minus)[kGroups]) const {
    constexpr uint32_t kFirst = 0x01010101, kSecond = kBits == 4 ? 0x10101010 : 0x01010101;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      int32_t sums[4] = {};
#pragma unroll
      for (int i = 0; i < kChunkSpans / kGroups; ++i) {
        const uint32_t(&of_span)[2] = digits[group * (kChunkSpans / kGroups) + i];
        MultiplyAdd<uint8_t>(sums, {kFirst, kFirst, kSecond, kSecond}, of_span[0], of_span[1]);
      }
      minus[group] = -(sums[0] + 256 * sums[1]);
    }
  }

 private:
  // Smaller activations than 2^-95 are multiplied with as many bits as if the largest of the chunk
  // had this size, so that no power of two below leaves a float's range.
  static constexpr uint32_t kLeastExponent = 32;
  // |x| < 2^(exponent - 126), so that integers are x * 2^(156 - exponent), below 2^30.
  static constexpr uint32_t kInteger = 156;

  // The elements of weights in the upper half of bytes are 16 times too large there, so their
  // activations are 16 times smaller.
  __device__ __forceinline__ void StoreDigits(const uint32_t (&pairs)[2], uint32_t exponent,
                                              int t) const {
    const int lane = threadIdx.x % 32, at = lane / 4;
    const uint32_t less = kBits == 4 && at % 2 == 1 ? 4 : 0;
    const float factor = PowerOfTwo(127 + kInteger - exponent - less);
    const float2 a = Values(T(), pairs[0]), b = Values(T(), pairs[1]);
    // In the order of bytes of a word of weights.
    const float values[4] = {a.x, kBits == 4 ? b.x : a.y, kBits == 4 ? a.y : b.x, b.y};
    uint32_t words[4], out[kDigits];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Adding 128 to each digit but the last carries what is above 127; then the bytes are the
      // digits plus 128, which differ from them in the upper bit.
      constexpr uint32_t kCarry = 0x00808080;
      words[i] = (static_cast<uint32_t>(__float2int_rn(values[i] * factor)) + kCarry) ^ kCarry;
    }
    GatherBytes(words, out);
#pragma unroll
    for (int d = 0; d < kDigits; ++d) {
      const int column = t * kDigits + d;
      const int word = at / 4 * kDigitPitch + (column * 4 + lane % 4) * 4 + at % 4;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(words_ + word * 4), "r"(out[d]) : "memory");
    }
  }

  const T* const x_;
  const int64_t stride_;
  const int tokens_, k_;
  const uint32_t words_;
};

}  // namespace quire::cuda
