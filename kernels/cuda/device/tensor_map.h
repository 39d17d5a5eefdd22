// DescribeTensor: a tensor in device memory as the copy engine sees it, from which kernels copy
// boxes to shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

#include "kernels/dtype.h"

namespace quire::cuda {

// The innermost dimension, whose elements follow each other, comes first. Elements beyond the
// dimensions are copied as zeros.
struct TensorDescription {
  void* base = nullptr;              // 16-byte aligned
  DType dtype = DType::kBF16;        // bf16, f16 or 8-bit
  std::span<const int64_t> dims;     // two to five
  std::span<const int64_t> strides;  // elements, of all but the innermost; multiples of 16 bytes
  std::span<const uint32_t> box;     // at most 256 in each dimension
  // Whether the 16-byte vectors of the box's rows are exchanged, so that those of eight rows at the
  // same columns lie in different banks: in rows of 128 bytes as products expect (warpgroup.cuh),
  // in rows of 64 bytes vector v of row r at v ^ (r / 2 % 4).
  bool swizzled = true;
};

CUtensorMap DescribeTensor(const TensorDescription& tensor);

}  // namespace quire::cuda
