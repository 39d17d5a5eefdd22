// EngineWorkers: the ranks of an engine: where they run, what device they have, and how they are
// started; as threads of this process, or as processes under a supervisor.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine_setup.h"
#include "engine/worker/process/supervisor.h"
#include "engine/worker/rank/device_facts.h"
#include "engine/worker/shm/host_arena.h"
#include "engine/worker/transport.h"

namespace quire {

// What the driver shows where there is any GPU; a container's own may have any number.
inline constexpr char kGpuDriver[] = "/dev/nvidiactl";

class EngineWorkers {
 public:
  // Decides on --device auto (a GPU if there is one that the worker can use) and starts the worker
  // processes, if there are to be any, as far as describing their device. Where `gpu_driver` does
  // not exist, auto asks no worker. Errors as DraftEngine's; UNIMPLEMENTED or UNAVAILABLE, in the
  // worker's words, when there is no such device.
  static absl::StatusOr<std::unique_ptr<EngineWorkers>> Find(
      const EngineConfig& requested, const std::string& gpu_driver = kGpuDriver);

  // The requested settings with the device decided, for PlanEngine.
  const EngineConfig& config() const { return config_; }
  const DeviceFacts& device() const { return device_; }

  // Takes the memory, loads the model on every rank and returns the transport to the running
  // group. Once. Errors as LoadModel's, or in the worker's words.
  absl::StatusOr<std::unique_ptr<Transport>> Start(const EngineSetup& setup, WorkerReport* report);
  // From Start on: the host memory that the transport's copies go to and come from. It is there as
  // long as anybody holds it.
  const HostArenas& arenas() const { return arenas_; }

 private:
  EngineWorkers() = default;
  bool FindGpu(const std::string& driver);
  absl::Status FindProcesses(const EngineSetup& draft);

  EngineConfig config_;
  DeviceFacts device_;
  std::unique_ptr<Supervisor> supervisor_;  // of ranks that are processes
  HostArenas arenas_;                       // theirs have no pages before Start
};

// Ranks as threads of this process, on the cpu. `arenas`, unless null, becomes what
// EngineWorkers::arenas is.
absl::StatusOr<std::unique_ptr<Transport>> StartThreads(const EngineSetup& setup,
                                                        WorkerReport* report,
                                                        HostArenas* arenas = nullptr);

}  // namespace quire
