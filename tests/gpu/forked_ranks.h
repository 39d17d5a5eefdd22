// OnForkedRanks on GPUs: rank r takes GPU r, or shares one where there are fewer. The calling
// process must not have used CUDA.
#pragma once

#include <cuda_runtime.h>

#include "tests/kernels/forked_ranks.h"

namespace quire::gpu {

// GPUs of this machine, asked for in a process that ends at once.
inline int CountGpus() {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    _exit(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

inline bool OnForkedRanks(int ranks, const std::function<bool(const RankPlace&)>& body) {
  const int gpus = CountGpus();
  CHECK_GE(gpus, 1);
  return testing::OnForkedRanks(ranks, [&](const RankPlace& place) {
    CHECK_EQ(cudaSetDevice(place.rank % gpus), cudaSuccess);
    return body(place);
  });
}

}  // namespace quire::gpu
