// CUDA_CHECK: a call of the CUDA runtime or of its libraries that fails ends the process with what,
// where and why. A device fault is sticky: nothing can be saved in this process, and a fresh worker
// is cheap.
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
