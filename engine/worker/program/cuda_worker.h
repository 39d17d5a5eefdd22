// MakeCudaWorker: a worker on an NVIDIA device, warmed up, its graphs captured, its memory sealed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/worker/rank/worker.h"
#include "engine/worker/rank/worker_spec.h"
#include "kernels/cuda/cuda_backend.h"

namespace quire {

// What a rank's backend is created with.
CudaOptions CudaOptionsFor(const WorkerSpec& spec, int ordinal, const std::string& algorithm_cache);

// The batch sizes captured when nobody names any: 1, 2, 4, then every 8 to 64, then every 16, up to
// `max_num_seqs`.
std::vector<int32_t> DefaultGraphSizes(int32_t max_num_seqs);

// What starting took.
struct CudaWorkerReport {
  CudaDeviceInfo device;
  std::vector<GraphStats> graphs;
  double load_seconds = 0;     // weights
  double warm_seconds = 0;     // first steps, choice of algorithms, captures
  int64_t planned_bytes = 0;   // what was asked of the device
  int64_t measured_bytes = 0;  // what the driver says is gone since the context was made
};

// RESOURCE_EXHAUSTED when the device has too little memory; UNAVAILABLE when there is none. `arena`
// as MakeWorker's.
absl::StatusOr<std::unique_ptr<Worker>> MakeCudaWorker(const WorkerSpec& spec,
                                                       const CudaOptions& options,
                                                       CudaWorkerReport* report,
                                                       std::shared_ptr<HostArena> arena = nullptr);

}  // namespace quire
