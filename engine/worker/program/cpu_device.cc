// A worker over the CPU backend.
#include "engine/worker/program/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/worker/rank/worker.h"
#include "kernels/backend.h"

namespace quire {
namespace {

int64_t PageBytes(int pages_name) {
  return int64_t{sysconf(pages_name)} * int64_t{sysconf(_SC_PAGESIZE)};
}

absl::StatusOr<DeviceFacts> Describe(const WorkerOrder&) {
  return DeviceFacts{.kind = "cpu",
                     .name = "cpu",
                     .total_bytes = PageBytes(_SC_PHYS_PAGES),
                     .free_bytes = PageBytes(_SC_AVPHYS_PAGES)};
}

absl::StatusOr<std::unique_ptr<StepPipeline>> Make(const WorkerOrder& order, WorkerReport* report) {
  const int32_t threads = std::max(1, order.cpu_threads / order.place.ranks);
  std::string why;
  std::unique_ptr<Backend> backend = CreateCpuBackend(order.place, threads, &why);
  if (backend == nullptr) return absl::UnavailableError(why);
  report->description = backend->Describe();
  const int64_t begin_ns = SteadyNowNs();
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker,
                   MakeWorker(order.spec, std::move(backend), order.arena));
  report->seconds = {{"load", static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9}};
  return std::unique_ptr<StepPipeline>(std::move(worker));
}

}  // namespace

const WorkerDevice kCpuDevice = {"cpu", Describe, Make};

}  // namespace quire
