// The encoder is found at run time, so that nothing links against the driver.
#include "kernels/cuda/device/tensor_map.h"

#include <cuda_runtime.h>

#include <array>
#include <cstddef>

#include "kernels/check.h"
#include "kernels/cuda/device/check.h"

namespace quire::cuda {
namespace {

constexpr size_t kMaxRank = 5;

auto Encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                              cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSuccess);
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

CUtensorMapDataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kF16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default: CHECK_EQ(SizeOf(dtype), 1u); return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

CUtensorMapSwizzle SwizzleOf(const TensorDescription& t) {
  if (!t.swizzled) return CU_TENSOR_MAP_SWIZZLE_NONE;
  const size_t row_bytes = t.box[0] * SizeOf(t.dtype);
  CHECK(row_bytes == 64 || row_bytes == 128);
  return row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
}

}  // namespace

CUtensorMap DescribeTensor(const TensorDescription& t) {
  static const auto encode = Encoder();
  const size_t rank = t.dims.size();
  CHECK(rank >= 2 && rank <= kMaxRank && t.strides.size() == rank - 1 && t.box.size() == rank);
  std::array<cuuint64_t, kMaxRank> dims{}, strides{};
  std::array<cuuint32_t, kMaxRank> steps{};
  for (size_t i = 0; i < rank; ++i) {
    dims[i] = static_cast<cuuint64_t>(t.dims[i]);
    steps[i] = 1;
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(t.strides[i - 1]) * SizeOf(t.dtype);
  }
  CUtensorMap map;
  const CUresult result =
      encode(&map, TypeOf(t.dtype), static_cast<cuuint32_t>(rank), t.base, dims.data(),
             strides.data(), t.box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
             SwizzleOf(t), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS);
  return map;
}

}  // namespace quire::cuda
