// Element-wise and row-wise inner loops. Included once per instruction set, after its vec16_*.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/vector/layer_norm_run.h"
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

// tanh(x), lane by lane, within 4 ulp: an odd rational function that meets 1 at the limit.
QUIRE_INLINE Vec16 Tanh(Vec16 x) {
  const auto c = [](float value) __attribute__((always_inline)) { return Vec16::Set(value); };
  const Vec16 v = Max(c(-7.90531110763549805f), Min(c(7.90531110763549805f), x));
  const Vec16 s = v * v;
  Vec16 p = Fma(s, c(-2.76076847742355e-16f), c(2.00018790482477e-13f));
  p = Fma(s, p, c(-8.60467152213735e-11f));
  p = Fma(s, p, c(5.12229709037114e-08f));
  p = Fma(s, p, c(1.48572235717979e-05f));
  p = Fma(s, p, c(6.37261928875436e-04f));
  p = Fma(s, p, c(4.89352455891786e-03f));
  Vec16 q = Fma(s, c(1.19825839466702e-06f), c(1.18534705686654e-04f));
  q = Fma(s, q, c(2.26843463243900e-03f));
  q = Fma(s, q, c(4.89352518554385e-03f));
  return v * p / q;
}

// cap * tanh(x / cap).
QUIRE_INLINE Vec16 SoftCap(Vec16 x, float cap) {
  return Vec16::Set(cap) * Tanh(x / Vec16::Set(cap));
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

void LayerNormOfRun(const LayerNormRun& run) {
  Vec16 sum = Vec16::Set(0.0f), squares = Vec16::Set(0.0f);
  EachVector(run.n, [&](int64_t i, int n) { sum = sum + LoadN(run.x + i, n); });
  const Vec16 mean = Vec16::Set(Sum(sum) / static_cast<float>(run.n));
  EachVector(run.n, [&](int64_t i, int n) {
    const Vec16 d = KeepLanes(LoadN(run.x + i, n) - mean, 0, n, 0.0f);
    squares = Fma(d, d, squares);
  });
  const float variance = Sum(squares) / static_cast<float>(run.n);
  const Vec16 factor = Vec16::Set(1.0f / std::sqrt(variance + run.eps));
  DispatchFloat(run.weight.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto* w = static_cast<const T*>(run.weight.data);
    const auto* b = static_cast<const T*>(run.bias.data);
    EachVector(run.n, [&](int64_t i, int n) {
      Vec16 y = (LoadN(run.x + i, n) - mean) * factor * LoadN(w + i, n);
      if (b != nullptr) y = y + LoadN(b + i, n);
      StoreN(y, run.out + i, n);
    });
  });
}

void AddScaledRow(float* to, const float* x, float scale, int64_t count) {
  const Vec16 factor = Vec16::Set(scale);
  EachVector(count, [&](int64_t i, int n) {
    StoreN(LoadN(to + i, n) + LoadN(x + i, n) * factor, to + i, n);
  });
}

void ScaleRow(float* x, float factor, float cap, int64_t count) {
  const Vec16 by = Vec16::Set(factor);
  EachVector(count, [&](int64_t i, int n) {
    const Vec16 v = LoadN(x + i, n) * by;
    StoreN(cap > 0 ? SoftCap(v, cap) : v, x + i, n);
  });
}

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)), which keeps its digits where the sum would cancel.
void GeluRow(const float* x, const float* up, float* out, int64_t count) {
  const Vec16 one = Vec16::Set(1.0f);
  // -2 sqrt(2 / pi), and that times 0.044715.
  const Vec16 linear = Vec16::Set(-1.5957691216057308f), cubic = Vec16::Set(-0.07135481627260025f);
  EachVector(count, [&](int64_t i, int n) {
    const Vec16 v = LoadN(x + i, n);
    const Vec16 exponent = v * Fma(v * v, cubic, linear);
    const Vec16 y = v / (one + Exp(exponent));
    StoreN(up == nullptr ? y : y * LoadN(up + i, n), out + i, n);
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
