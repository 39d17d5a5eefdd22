// DispatchDevice and DispatchHalf: call a generic function with the device's C++ type of a dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/check.h"
#include "kernels/dtype.h"

namespace quire::cuda {

// fn(T{}) for float, __nv_bfloat16 or __half.
template <typename Fn>
decltype(auto) DispatchDevice(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kBF16: return fn(__nv_bfloat16{});
    case DType::kF16: return fn(__half{});
    default: CHECK(dtype == DType::kF32); return fn(float{});
  }
}

// fn(T{}) for __nv_bfloat16 or __half, the types of the matrix units.
template <typename Fn>
decltype(auto) DispatchHalf(DType dtype, Fn&& fn) {
  if (dtype == DType::kF16) return fn(__half{});
  CHECK(dtype == DType::kBF16);
  return fn(__nv_bfloat16{});
}

}  // namespace quire::cuda
