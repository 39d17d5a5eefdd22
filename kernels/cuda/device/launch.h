// Launch: starts a kernel on a stream with programmatic dependent launch, so that its first
// instructions overlap the end of the kernel before it.
//
// A kernel's wait covers only the kernel just before it on the stream. So every kernel keeps these
// rules:
// 1. It calls PdlWait() on every path before it reads or writes memory that a predecessor reads or
//    writes. Before the wait it uses only constants (weights, tables), its own shared memory, and
//    after an attention of the step the memory of rule 2.
// 2. Attention waits before it triggers. So everything enqueued before an attention is complete
//    when a kernel behind the attention starts: the step's tables and plan, and the KV of older
//    steps. The step's later layers read these before they wait: the code calls such a layer
//    "settled".
// 3. It waits even if it needs nothing of a predecessor, so that waits form a chain.
// 4. It never reads a predecessor's writes through the non-coherent path (ld.global.nc, __ldg).
// 5. The last user of a counter resets it, after its wait.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/device/check.h"

namespace quire::cuda {

// The device and stream of one rank's operations, constant while the backend lives.
struct Device {
  int ordinal = 0;
  int num_sms = 0;
  cudaStream_t stream = nullptr;
  // Off only to compare results with and without it, never in service.
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
  // A multiprocessor can move the border between shared memory and the first-level cache only while
  // it is empty: a block that needs another border waits for all resident blocks. So all kernels
  // ask for the same one.
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
