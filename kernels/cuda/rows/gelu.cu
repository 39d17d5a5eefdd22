// Gelu: the activation of a feed-forward layer, with a gate or without.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/each_element.cuh"

namespace quire::cuda {
namespace {

// With u = sqrt(2 / pi) (x + 0.044715 x^3), (1 + tanh(u)) / 2 is 1 / (1 + e^-2u), which keeps its
// digits where the sum would cancel. -0 where e^-2u overflows.
__device__ __forceinline__ float GeluOf(float x) {
  // -2 sqrt(2 / pi), and that times 0.044715.
  constexpr float kLinear = -1.5957691216057308f, kCubic = -0.07135481627260025f;
  return __fdividef(x, 1.0f + __expf(x * fmaf(x * x, kCubic, kLinear)));
}

struct GeluAlone {
  static constexpr int kOperands = 1;
  __device__ __forceinline__ float operator()(float x) const { return GeluOf(x); }
};
struct GeluTimes {
  static constexpr int kOperands = 2;
  __device__ __forceinline__ float operator()(float x, float up) const { return GeluOf(x) * up; }
};

}  // namespace

void Gelu(const GeluParams& p, const Device& device) {
  const int64_t width = p.out.dim[1];
  CHECK_EQ(p.x.dim[1], p.gated ? 2 * width : width);
  const TensorView x = p.x.Columns(0, width);
  if (p.gated) {
    EachElement(x, p.x.Columns(width, width), p.out, GeluTimes{}, device);
  } else {
    EachElement(x, {}, p.out, GeluAlone{}, device);
  }
}

}  // namespace quire::cuda
