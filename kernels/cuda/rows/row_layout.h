// What operations over rows demand of their tensors, and how many threads a row takes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/tensor.h"

namespace quire::cuda {

// Every row begins on 16 bytes and holds a multiple of eight elements, the unit of these kernels.
inline void CheckRowsOfEights(const TensorView& x) {
  CHECK_EQ(x.rank, 2);
  CHECK_EQ(x.dim[1] % 8, 0);
  CHECK_EQ(reinterpret_cast<uintptr_t>(x.data) % 16, 0);
  CHECK_EQ(x.row_stride * static_cast<int64_t>(SizeOf(x.dtype)) % 16, 0);
}

// Whole warps for `count` things to do, at most `most` threads.
inline unsigned ThreadsFor(int64_t count, int64_t most) {
  return static_cast<unsigned>(std::clamp<int64_t>(RoundUp<int64_t>(count, 32), 32, most));
}

inline unsigned Blocks(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(CeilDiv(count, per_block));
}

}  // namespace quire::cuda
