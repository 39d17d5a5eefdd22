// Prints the failed call and aborts the worker.
#include "kernels/cuda/device/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire::cuda {

void DieOf(cudaError_t error, const char* call, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, cudaGetErrorString(error),
               cudaGetErrorName(error));
  std::abort();
}

void DieOf(cublasStatus_t status, const char* call, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cublasLtGetStatusString(status));
  std::abort();
}

}  // namespace quire::cuda
