// CUDA_CHECK: ends the process when a call of the CUDA runtime or its libraries fails, and prints
// the call, its place and the error. A device fault is sticky: this process cannot recover, and a
// new worker starts quickly.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace quire::cuda {

// Print one line to stderr and abort.
[[noreturn]] void DieOf(cudaError_t error, const char* call, const char* file, int line);
[[noreturn]] void DieOf(cublasStatus_t status, const char* call, const char* file, int line);

inline void Check(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) [[unlikely]]
    DieOf(error, call, file, line);
}
inline void Check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    DieOf(status, call, file, line);
}

}  // namespace quire::cuda

#define CUDA_CHECK(call) ::quire::cuda::Check((call), #call, __FILE__, __LINE__)
