// Requirements of row operations on their tensors, and the number of threads and blocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/device_limits.h"
#include "kernels/tensor.h"

namespace quire::cuda {

// CHECKs that every row is aligned to 16 bytes and has a multiple of eight elements, the kernels'
// unit.
inline void CheckRowsOfEights(const TensorView& x) {
  CHECK_EQ(x.rank, 2);
  static_assert(kCudaLimits.width_multiple == 8);
  CHECK_EQ(x.dim[1] % 8, 0);
  CHECK_EQ(reinterpret_cast<uintptr_t>(x.data) % 16, 0);
  CHECK_EQ(x.row_stride * static_cast<int64_t>(SizeOf(x.dtype)) % 16, 0);
}

// CHECKs a result of rows of eights: of `dtype`, or 8-bit with scales.
inline void CheckOutOfEights(DType dtype, const TensorView& out) {
  CheckRowsOfEights(out);
  CHECK(out.dtype == dtype || (IsEightBit(out.dtype) && out.scales != nullptr));
}

// Threads of a block for `count` items: whole warps, at least one, at most `most` threads.
inline unsigned ThreadsFor(int64_t count, int64_t most) {
  return static_cast<unsigned>(std::clamp<int64_t>(RoundUp<int64_t>(count, 32), 32, most));
}

// Blocks for `count` items of `per_block` each.
inline unsigned Blocks(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(CeilDiv(count, per_block));
}

}  // namespace quire::cuda
