// SiluMul: the gate of a SwiGLU feed-forward layer.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/each_element.cuh"

namespace quire::cuda {
namespace {

// g / (1 + e^-g) to a few units in the last place of a float; -0 where e^-g overflows.
struct SiluTimes {
  static constexpr int kOperands = 2;
  __device__ __forceinline__ float operator()(float g, float up) const {
    return up * __fdividef(g, 1.0f + __expf(-g));
  }
};

}  // namespace

void SiluMul(const SiluMulParams& p, const Device& device) {
  const int64_t width = p.out.dim[1];
  CHECK_EQ(p.gate_up.dim[1], 2 * width);
  EachElement(p.gate_up.Columns(0, width), p.gate_up.Columns(width, width), p.out, SiluTimes{},
              device);
}

}  // namespace quire::cuda
