// A worker over the CUDA backend: the device whose number is the rank.
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/worker/program/cuda_worker.h"
#include "engine/worker/program/gpu_device.h"
#include "kernels/cuda/cuda_backend.h"

namespace quire {
namespace {

CudaOptions OptionsOf(const WorkerOrder& order) {
  // Also the folders above it: a new account has no ~/.cache. Without it, measurements are not
  // kept.
  std::error_code error;
  if (!order.cache_dir.empty()) std::filesystem::create_directories(order.cache_dir, error);
  RankPlace place = order.place;
  place.rank = order.spec.tp.rank;
  place.ranks = order.spec.tp.size;
  place.one_host = order.host.empty();
  return CudaOptionsFor(order.spec, place, order.local_rank, order.cache_dir);
}

absl::StatusOr<DeviceFacts> Describe(const WorkerOrder& order) {
  std::string why;
  const std::unique_ptr<CudaDeviceInfo> info = DescribeCudaDevice(order.local_rank, &why);
  if (info == nullptr) {
    const int32_t ranks = order.spec.tp.size;
    const std::string advice = ranks == 1 ? "--device cpu needs none"
                                          : "each rank of --tensor-parallel-size " +
                                                std::to_string(ranks) + " needs a GPU of its own";
    return absl::UnavailableError("--device cuda: " + why + "; " + advice);
  }
  return DeviceFacts{.kind = "cuda",
                     .name = info->name,
                     .total_bytes = info->total_bytes,
                     .free_bytes = info->free_bytes,
                     .backend_bytes = CudaBackendBytes(OptionsOf(order)),
                     .uuid = info->uuid};
}

absl::StatusOr<std::unique_ptr<StepPipeline>> Make(const WorkerOrder& order, WorkerReport* report) {
  CudaWorkerReport cuda;
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker,
                   MakeCudaWorker(order.spec, OptionsOf(order), &cuda, order.arena));
  report->description = worker->backend().Describe();
  report->memory = {{"planned", cuda.planned_bytes}, {"measured", cuda.measured_bytes}};
  report->seconds = {{"load", cuda.load_seconds}, {"warm", cuda.warm_seconds}};
  for (const GraphStats& graph : cuda.graphs) {
    report->graphs.push_back({.size = static_cast<int32_t>(graph.key),
                              .nodes = graph.nodes,
                              .capture_ms = graph.capture_ms,
                              .bytes = graph.bytes});
  }
  return std::unique_ptr<StepPipeline>(std::move(worker));
}

}  // namespace

const WorkerDevice kGpuDevice = {"cuda", Describe, Make};

}  // namespace quire
