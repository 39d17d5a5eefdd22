// The vector kernels for processors with AVX2, FMA and F16C.
#include "kernels/cpu/vector/vec16_avx2.h"

#include "kernels/cpu/vector/vector_table.h"

namespace quire::cpu {

extern const VectorKernels kAvx2Kernels;
const VectorKernels kAvx2Kernels = kTable;

}  // namespace quire::cpu
