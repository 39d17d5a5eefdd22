// One loop; the library lives as long as it.
#include "server/metrics/gpu_watch.h"

#include <chrono>
#include <memory>
#include <utility>

#include "engine/base/log.h"
#include "server/metrics/gpu_metrics.h"

namespace quire {

GpuWatch::GpuWatch(std::vector<std::string> uuids, GpuMetrics* metrics, Options options)
    : uuids_(std::move(uuids)),
      metrics_(metrics),
      options_(std::move(options)),
      thread_([this] { Run(); }) {}

GpuWatch::~GpuWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void GpuWatch::Run() {
  absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(options_.library);
  if (!nvml.ok()) {
    Log(Severity::kWarning, "no metrics of the GPUs: the driver's library cannot be used",
        {{"reason", std::string(nvml.status().message())}});
    return;
  }
  std::vector<size_t> gpus;
  for (const std::string& uuid : uuids_) {
    const absl::StatusOr<size_t> gpu = (*nvml)->Find(uuid);
    if (gpu.ok()) {
      gpus.push_back(*gpu);
    } else {
      Log(Severity::kWarning, "no metrics of a GPU",
          {{"reason", std::string(gpu.status().message())}});
    }
  }
  while (!gpus.empty() && !WaitForNext()) {
    for (const size_t gpu : gpus) metrics_->Set((*nvml)->Read(gpu));
  }
}

// Whether the watch ends. The first reading comes after a wait, because a share needs two samples.
bool GpuWatch::WaitForNext() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(options_.seconds),
                           [this] { return ending_; });
}

}  // namespace quire
