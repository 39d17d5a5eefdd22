// Element-wise and row-wise inner loops. Included once per instruction set, after its vec16_*.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/vector/vector_kernels.h"

namespace quire::cpu {
namespace {

// Calls fn(i, n) for i = 0, 16, ... with n the elements left in that vector, 1 to 16.
template <typename Fn>
QUIRE_INLINE void EachVector(int64_t count, Fn fn) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) fn(i, 16);
  if (i < count) fn(i, static_cast<int>(count - i));
}

template <typename T>
QUIRE_INLINE Vec16 LoadN(const T* p, int n) {
  return n == 16 ? Vec16::Load(p) : Vec16::LoadPart(p, n);
}
QUIRE_INLINE void StoreN(Vec16 v, float* p, int n) {
  if (n == 16) {
    v.Store(p);
  } else {
    v.StorePart(p, n);
  }
}

// e^x, lane by lane the bits of ExactExp in kernels/sampling_math.h; NaN stays NaN.
QUIRE_INLINE Vec16 Exp(Vec16 x) {
  const Vec16 round = Vec16::Set(12582912.0f);
  const Vec16 limited = Min(Vec16::Set(88.37f), x);
  const Vec16 t = Fma(limited, Vec16::Set(1.44269502f), round);
  const Vec16 n = t - round;
  Vec16 r = Fma(n, Vec16::Set(-0.693147182f), limited);
  r = Fma(n, Vec16::Set(1.90465421e-9f), r);
  Vec16 q = Fma(r, Vec16::Set(0.0013814535923302174f), Vec16::Set(0.00836874544620514f));
  q = Fma(q, r, Vec16::Set(0.04166839271783829f));
  q = Fma(q, r, Vec16::Set(0.1666652113199234f));
  q = Fma(q, r, Vec16::Set(0.4999999403953552f));
  const Vec16 e = Fma(r * r, q, r) + Vec16::Set(1.0f);
  return ZeroWhereLess(e * PowerOfTwo(t), x, Vec16::Set(-87.0f));
}

void Widen(Elements from, float* to, int64_t count) {
  DispatchFloat(from.dtype, [&](auto tag) {
    const auto* data = static_cast<const decltype(tag)*>(from.data);
    EachVector(count, [&](int64_t i, int n) { StoreN(LoadN(data + i, n), to + i, n); });
  });
}

void Narrow(const float* from, void* to, DType dtype, int64_t count) {
  DispatchFloat(dtype, [&](auto tag) {
    using T = decltype(tag);
    T* data = static_cast<T*>(to);
    for (int64_t i = 0; i < count; ++i) data[i] = FromFloat<T>(from[i]);
  });
}

void Add(float* to, const float* x, int64_t count) {
  EachVector(count,
             [&](int64_t i, int n) { StoreN(LoadN(to + i, n) + LoadN(x + i, n), to + i, n); });
}

void RmsNormRow(const float* x, Elements weight, float eps, float* out, int64_t count) {
  Vec16 squares = Vec16::Set(0.0f);
  EachVector(count, [&](int64_t i, int n) {
    const Vec16 v = LoadN(x + i, n);
    squares = Fma(v, v, squares);
  });
  const float mean = Sum(squares) / static_cast<float>(count);
  const Vec16 factor = Vec16::Set(1.0f / std::sqrt(mean + eps));
  DispatchFloat(weight.dtype, [&](auto tag) {
    const auto* w = static_cast<const decltype(tag)*>(weight.data);
    EachVector(count, [&](int64_t i, int n) {
      StoreN(LoadN(x + i, n) * factor * LoadN(w + i, n), out + i, n);
    });
  });
}

void SiluMulRow(const float* gate, const float* up, float* out, int64_t count) {
  const Vec16 zero = Vec16::Set(0.0f), one = Vec16::Set(1.0f);
  EachVector(count, [&](int64_t i, int n) {
    const Vec16 g = LoadN(gate + i, n);
    StoreN(g / (one + Exp(zero - g)) * LoadN(up + i, n), out + i, n);
  });
}

void RotateHead(float* head, const float* cos, const float* sin, int64_t half) {
  EachVector(half, [&](int64_t i, int n) {
    const Vec16 a = LoadN(head + i, n), b = LoadN(head + half + i, n);
    const Vec16 c = LoadN(cos + i, n), s = LoadN(sin + i, n);
    StoreN(a * c - b * s, head + i, n);
    StoreN(b * c + a * s, head + half + i, n);
  });
}

}  // namespace
}  // namespace quire::cpu
