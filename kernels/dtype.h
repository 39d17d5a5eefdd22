// DType: the element types of tensors, their sizes, and scalar conversions to and from the narrow
// floats (round to nearest even).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/check.h"

namespace quire {

// kE4M3 is an 8-bit float with a sign, four bits of exponent and three of fraction: up to 448, in
// steps of 2^-9 near zero, without infinities. Its tensors have scales (tensor.h), and so have
// those of kI8, 8-bit integers. kU4 and kU8 are the unsigned integers of packed matrices
// (packed_row.h), two or one a byte.
enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kE4M3, kI8, kU4, kU8 };

// Types of matrices whose inputs are as narrow.
constexpr bool IsEightBit(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kI8; }

constexpr bool IsPacked(DType dtype) { return dtype == DType::kU4 || dtype == DType::kU8; }

// Of one element, which kU4 has no whole bytes for: see BytesOf.
constexpr size_t SizeOf(DType dtype) {
  CHECK(dtype != DType::kU4);
  if (IsEightBit(dtype) || dtype == DType::kU8) return 1;
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
}
// Of a run of elements; an even number of kU4.
constexpr int64_t BytesOf(DType dtype, int64_t elements) {
  return dtype == DType::kU4 ? elements / 2 : elements * static_cast<int64_t>(SizeOf(dtype));
}

constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kI32: return "int32";
    case DType::kE4M3: return "float8_e4m3";
    case DType::kI8: return "int8";
    case DType::kU4: return "uint4";
    case DType::kU8: return "uint8";
  }
  return "?";
}

// Narrow floats as they lie in memory; arithmetic is in float.
struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct E4M3 {
  uint8_t bits;
};
inline constexpr float kE4M3Max = 448;
struct I8 {
  int8_t value;
};
// The largest that a row is scaled to; stored elements may be -128.
inline constexpr float kI8Max = 127;

inline float ToFloat(float x) { return x; }
inline float ToFloat(BF16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline float ToFloat(F16 x) { return static_cast<float>(std::bit_cast<_Float16>(x.bits)); }
// Exponent and fraction are those of an f16 of 2^-8 times the value; 0x7f and 0xff are NaN.
inline float ToFloat(E4M3 x) {
  if ((x.bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const auto half = static_cast<uint16_t>((x.bits & 0x80) << 8 | (x.bits & 0x7f) << 7);
  return ToFloat(F16{half}) * 256;
}

inline float ToFloat(I8 x) { return x.value; }

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

// Saturates at +-448; NaN stays NaN.
template <>
inline E4M3 FromFloat<E4M3>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const float size = std::bit_cast<float>(bits & 0x7fffffffu);
  if (!(size == size)) return E4M3{static_cast<uint8_t>(sign | 0x7f)};
  if (size >= kE4M3Max) return E4M3{static_cast<uint8_t>(sign | 0x7e)};
  // The sum with a power of two leaves the wanted bits of `size` at the end of its fraction.
  const uint32_t exponent = std::max(std::bit_cast<uint32_t>(size) >> 23, 127u - 6u);
  const float unit = std::bit_cast<float>((exponent + 20) << 23);
  const uint32_t steps = std::bit_cast<uint32_t>(size + unit) - std::bit_cast<uint32_t>(unit);
  // `steps` counts eighths of 2^(exponent - 127); a carry moves on to the next exponent.
  return E4M3{static_cast<uint8_t>(sign | (((exponent - (127 - 6)) << 3) + steps))};
}

// Saturates at -128 and 127; NaN becomes 0.
template <>
inline I8 FromFloat<I8>(float x) {
  if (!(x == x)) return I8{0};
  // The sum with 1.5 * 2^23 has units of 1 at the end of its fraction.
  constexpr float kUnit = 0x1.8p23f;
  const float within = std::clamp(x, -128.0f, 127.0f) + kUnit;
  return I8{static_cast<int8_t>(std::bit_cast<int32_t>(within) - std::bit_cast<int32_t>(kUnit))};
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

// The same for a dtype that may also be an 8-bit float.
template <typename Fn>
decltype(auto) DispatchStored(DType dtype, Fn&& fn) {
  if (dtype == DType::kE4M3) return fn(E4M3{});
  return DispatchFloat(dtype, fn);
}

// The same for a dtype that may also be one of integers.
template <typename Fn>
decltype(auto) DispatchElement(DType dtype, Fn&& fn) {
  if (dtype == DType::kI8) return fn(I8{});
  return DispatchStored(dtype, fn);
}

}  // namespace quire
