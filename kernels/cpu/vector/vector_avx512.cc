// The vector kernels for processors with AVX-512 F, BW, VL and DQ.
#include "kernels/cpu/vector/vec16_avx512.h"

#include "kernels/cpu/vector/vector_table.h"

namespace quire::cpu {

extern const VectorKernels kAvx512Kernels;
const VectorKernels kAvx512Kernels = kTable;

}  // namespace quire::cpu
