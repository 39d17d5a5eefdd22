// DType: the element types of tensors, their sizes, and scalar conversions to and from bf16 and f16
// (round to nearest even).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/check.h"

namespace quire {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32 };

constexpr size_t SizeOf(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}

constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kI32: return "int32";
  }
  return "?";
}

// 16-bit floats as they lie in memory; arithmetic is in float.
struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline float ToFloat(float x) { return x; }
inline float ToFloat(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline float ToFloat(F16 x) { return static_cast<float>(std::bit_cast<_Float16>(x.bits)); }

template <typename T>
T FromFloat(float x);
template <>
inline float FromFloat<float>(float x) {
  return x;
}
template <>
inline BF16 FromFloat<BF16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return BF16{static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return BF16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
inline F16 FromFloat<F16>(float x) {
  return F16{std::bit_cast<uint16_t>(static_cast<_Float16>(x))};
}

// Calls fn(T{}) with the C++ type of a floating dtype: DispatchFloat(d, [&](auto tag) {...}).
template <typename Fn>
decltype(auto) DispatchFloat(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kBF16: return fn(BF16{});
    case DType::kF16: return fn(F16{});
    default: CHECK(dtype == DType::kF32); return fn(float{});
  }
}

}  // namespace quire
