// Launch: starts a kernel on a stream with programmatic dependent launch, so that its first
// instructions overlap the end of the kernel before it.
//
// The rules every kernel of this folder keeps, because each one's wait covers only the kernel just
// before it:
// - it executes PdlWait() on every path, before it reads or writes anything a predecessor reads or
//   writes; before that it touches constants alone (weights, tables, shared memory), or, behind
//   attention, what the next rule has made one;
// - attention triggers after its wait: whatever begins behind it on the stream finds complete all
//   that was before it, the step's tables and plan and what older steps left in the KV pool. The
//   step's later layers read these before they wait;
// - it waits even if it needs nothing;
// - what a predecessor wrote is never read through the non-coherent path (ld.global.nc, __ldg);
// - counters are reset by their last user, after its wait.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/device/check.h"

namespace quire::cuda {

// What an operation is enqueued with: one per rank, constant while the backend lives.
struct Device {
  int ordinal = 0;
  int num_sms = 0;
  cudaStream_t stream = nullptr;
  // Off only to compare results with and without; never in service.
  bool dependent_launch = true;
};

struct Grid {
  dim3 blocks = {1, 1, 1};
  dim3 threads = {1, 1, 1};
  size_t shared_bytes = 0;
  dim3 cluster = {1, 1, 1};
};

template <typename... Params, typename... Args>
void Launch(const Device& device, const Grid& grid, void (*kernel)(Params...), Args&&... args) {
  cudaLaunchAttribute attributes[3];
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = device.stream;
  config.attrs = attributes;
  // A multiprocessor divides its memory between shared memory and the first-level cache anew only
  // when it is empty: a block that needs another division waits for all that are there.
  cudaLaunchAttribute& division = attributes[config.numAttrs++];
  division.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  division.val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  if (device.dependent_launch) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster.x * grid.cluster.y * grid.cluster.z > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = grid.cluster.x;
    attribute.val.clusterDim.y = grid.cluster.y;
    attribute.val.clusterDim.z = grid.cluster.z;
  }
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace quire::cuda
