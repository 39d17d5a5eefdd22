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

// The options that a rank's backend is created with. `cache_dir`: the folder of measured choices;
// empty: none are kept.
CudaOptions CudaOptionsFor(const WorkerSpec& spec, const RankPlace& place, int ordinal,
                           const std::string& cache_dir);

// Time and memory that the start took.
struct CudaWorkerReport {
  CudaDeviceInfo device;
  std::vector<GraphStats> graphs;
  double load_seconds = 0;     // weights
  double warm_seconds = 0;     // first steps, choice of algorithms, captures
  int64_t planned_bytes = 0;   // allocated from the device
  int64_t measured_bytes = 0;  // free memory lost since the context was made, by the driver
};

// RESOURCE_EXHAUSTED when the device has too little memory, UNAVAILABLE without a device. `arena`
// as in MakeWorker.
absl::StatusOr<std::unique_ptr<Worker>> MakeCudaWorker(const WorkerSpec& spec,
                                                       const CudaOptions& options,
                                                       CudaWorkerReport* report,
                                                       std::shared_ptr<HostArena> arena = nullptr);

}  // namespace quire
