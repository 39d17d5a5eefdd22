// Stands in for cuda_device.cc where no CUDA compiler was found.
#include "engine/worker/program/gpu_device.h"

namespace quire {
namespace {

constexpr char kWhy[] =
    "--device cuda is not in this build, which found no nvcc; use --device cpu, or build where the "
    "CUDA toolkit is installed";

absl::StatusOr<DeviceFacts> Describe(const WorkerOrder&) { return absl::UnimplementedError(kWhy); }

absl::StatusOr<std::unique_ptr<StepPipeline>> Make(const WorkerOrder&, WorkerReport*) {
  return absl::UnimplementedError(kWhy);
}

}  // namespace

const WorkerDevice kGpuDevice = {"cuda", Describe, Make};

}  // namespace quire
