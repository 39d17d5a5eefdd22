// FillUniform on the device gives the bits of the CPU backend, whose own test compares them with
// the definition.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

TEST(FillUniformGpuTest, MatchesTheBitsOfTheCpu) {
  const std::unique_ptr<Backend> cpu = MakeBackend({cpu::BestIsa(), 1});
  for (DType dtype : kFloatTypes) {
    for (int64_t size : {1, 3, 8, 4099, 1000005}) {
      for (uint64_t seed : {uint64_t{0}, uint64_t{0xfedcba9876543210}}) {
        Array expected(dtype, {1, size});
        cpu->FillUniform({.out = expected.view(), .seed = seed, .amplitude = 0.037f});
        DeviceTensor out(dtype, 1, size);
        cuda::FillUniform({.out = out.view(), .seed = seed, .amplitude = 0.037f}, TestDevice());
        ASSERT_TRUE(out.Get().SameBits(expected)) << Name(dtype) << " " << size;
      }
    }
  }
}

}  // namespace
}  // namespace quire::gpu
