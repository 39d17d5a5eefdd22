// The program quire-worker: one rank in a process of its own, from its first message to its last
// plan.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/rank/step_runner.h"

namespace quire {

// A kind of device that a worker can run on. Both functions may take seconds; the operator reads
// their errors unchanged.
struct WorkerDevice {
  std::string_view kind;  // WorkerOrder::device
  // UNIMPLEMENTED or UNAVAILABLE without such a device; --device auto then takes the CPU.
  absl::StatusOr<DeviceFacts> (*describe)(const WorkerOrder& order);
  // Takes the memory, loads the model, warms up.
  absl::StatusOr<std::unique_ptr<StepPipeline>> (*make)(const WorkerOrder& order,
                                                        WorkerReport* report);
};

// Serves the server that started this process until the last plan, and returns the exit code. If
// the server dies or closes the socket, the process ends at once. `cache_dir` as in WorkerOrder.
int RunWorkerProgram(int argc, char** argv, std::span<const WorkerDevice> devices,
                     const std::string& cache_dir);

}  // namespace quire
