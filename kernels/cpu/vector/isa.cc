// Chooses among the compiled kernel tables by the features that the processor reports.
#include "kernels/cpu/vector/isa.h"

#include "kernels/check.h"
#include "kernels/cpu/vector/vector_kernels.h"

namespace quire::cpu {

extern const VectorKernels kGenericKernels;
#if defined(__x86_64__)
extern const VectorKernels kAvx2Kernels;
extern const VectorKernels kAvx512Kernels;
#endif

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kGeneric};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    isas.push_back(Isa::kAvx2);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    isas.push_back(Isa::kAvx512);
  }
#endif
  return isas;
}

Isa BestIsa() { return SupportedIsas().back(); }

const VectorKernels& KernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return kAvx2Kernels;
  if (isa == Isa::kAvx512) return kAvx512Kernels;
#endif
  CHECK(isa == Isa::kGeneric);
  return kGenericKernels;
}

}  // namespace quire::cpu
