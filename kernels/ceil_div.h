// CeilDiv and RoundUp: integer division that rounds up, on the host and in device code.
#pragma once

namespace quire {

// The smallest integer >= a / b, for a >= 0 and b > 0. a + b - 1 must fit T.
template <typename T>
constexpr T CeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

// The smallest multiple of b that is >= a, for a >= 0 and b > 0. a + b - 1 must fit T.
template <typename T>
constexpr T RoundUp(T a, T b) {
  return CeilDiv(a, b) * b;
}

}  // namespace quire
