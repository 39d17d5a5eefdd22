// The vector kernels for any processor.
#include "kernels/cpu/vector/vec16_generic.h"

#include "kernels/cpu/vector/vector_table.h"

namespace quire::cpu {

extern const VectorKernels kGenericKernels;
const VectorKernels kGenericKernels = kTable;

}  // namespace quire::cpu
