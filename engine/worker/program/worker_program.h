// The program quire-worker: one rank in a process of its own, from its first word to its last plan.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/rank/step_runner.h"

namespace quire {

// A kind of device that a worker can run on. Both functions may take seconds; their errors reach
// the operator as they are.
struct WorkerDevice {
  std::string_view kind;  // WorkerOrder::device
  // UNIMPLEMENTED or UNAVAILABLE: there is none here, so that --device auto looks further.
  absl::StatusOr<DeviceFacts> (*describe)(const WorkerOrder& order);
  // Takes the memory, loads the model, warms up.
  absl::StatusOr<std::unique_ptr<StepPipeline>> (*make)(const WorkerOrder& order,
                                                        WorkerReport* report);
};

// Obeys the server that started this process until its last plan, and returns the exit code. If the
// server dies, or closes the socket, the process ends at once. `cache_dir` as in WorkerOrder.
int RunWorkerProgram(int argc, char** argv, std::span<const WorkerDevice> devices,
                     const std::string& cache_dir);

}  // namespace quire
