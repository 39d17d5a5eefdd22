// EngineWorkers: chooses the device of an engine and starts its ranks, as threads of this process
// or as processes under a supervisor.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine_setup.h"
#include "engine/worker/process/supervisor.h"
#include "engine/worker/rank/device_facts.h"
#include "engine/worker/remote/leader_port.h"
#include "engine/worker/remote/node_agent.h"
#include "engine/worker/shm/host_arena.h"
#include "engine/worker/transport.h"

namespace quire {

// The driver shows this file wherever there is a GPU; the number of a container's GPU is not fixed.
inline constexpr char kGpuDriver[] = "/dev/nvidiactl";

class EngineWorkers {
 public:
  // Of a group over several hosts: all ranks, or, for a plan that starts none, only the devices of
  // this host, as many as the group has ranks on it.
  enum class Reach : uint8_t { kAllNodes, kThisNode };

  // Resolves --device auto and starts the worker processes, if any, as far as describing their
  // device. auto takes the GPU if its kernels can run the model with these settings and the worker
  // finds the device; else the CPU, and logs why. Where `gpu_driver` does not exist, auto asks no
  // worker. Errors as DraftEngine's; INVALID_ARGUMENT if the system refuses so many threads as the
  // CPU is to compute with; UNIMPLEMENTED or UNAVAILABLE, in the worker's words, when a
  // device that was named is missing.
  // With other nodes, first waits until all have joined.
  static absl::StatusOr<std::unique_ptr<EngineWorkers>> Find(
      const EngineConfig& requested, const std::string& gpu_driver = kGpuDriver,
      Reach reach = Reach::kAllNodes);

  // Why --device auto took its device, one reason a line; empty when the device was named.
  const std::string& device_reason() const { return device_reason_; }
  // The requested settings with the device decided, for PlanEngine.
  const EngineConfig& config() const { return config_; }
  const DeviceFacts& device() const { return device_; }

  // Takes the memory, loads the model on every rank and returns the transport to the running group.
  // Processes that replace dead ones are kept only if `check` is OK (see Supervisor::Load). Call it
  // once. Errors as LoadModel's, or in the worker's words.
  absl::StatusOr<std::unique_ptr<Transport>> Start(const EngineSetup& setup, WorkerReport* report,
                                                   std::function<absl::Status()> check = nullptr);
  // From Start on: the host memory that the transport's copies use; empty where a part of it lies
  // on other hosts. Shared ownership keeps it alive.
  const HostArenas& arenas() const { return arenas_; }

 private:
  EngineWorkers() = default;
  absl::Status AwaitNodes();
  bool FindGpu(const std::string& driver);
  absl::Status FindProcesses(const EngineSetup& draft);

  EngineConfig config_;
  DeviceFacts device_;
  std::string device_reason_;
  std::shared_ptr<LeaderPort> port_;        // null: all ranks are on this host
  std::unique_ptr<Supervisor> supervisor_;  // null: ranks are threads
  HostArenas arenas_;                       // of processes: without pages before Start
};

// The ranks of this host for a leader on another one, until the agent's end. INVALID_ARGUMENT for a
// key or an address that cannot be used.
absl::StatusOr<std::unique_ptr<NodeAgent>> FollowLeader(const EngineConfig& config);

// Starts ranks as threads of this process, on the cpu. Fills `arenas`, unless null, with the host
// memory of EngineWorkers::arenas.
absl::StatusOr<std::unique_ptr<Transport>> StartThreads(const EngineSetup& setup,
                                                        WorkerReport* report,
                                                        HostArenas* arenas = nullptr);

}  // namespace quire
