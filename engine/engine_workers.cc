// Which device, which kind of ranks; and the orders that worker processes get.
#include "engine/engine_workers.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/worker/in_process_transport.h"
#include "engine/worker/rank/worker.h"
#include "engine/worker/transport.h"
#include "kernels/cpu/host_limits.h"

namespace quire {
namespace {

// A worker's step thread spins for as long as a step of the smallest model takes, if the machine
// has cores to spare.
constexpr int64_t kSpinNs = 200'000;
constexpr int kSpareCores = 4;  // the scheduler, gRPC, a delivery shard and one for the rest

// quire-worker lies beside this program.
std::string WorkerProgram(const EngineConfig& config) {
  if (!config.worker_program.empty()) return config.worker_program;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "quire-worker").string();
}

std::vector<WorkerOrder> OrdersFor(const EngineSetup& setup, const HostArenas& arenas, bool start) {
  const int32_t ranks = setup.config.tensor_parallel_size;
  std::vector<WorkerOrder> orders;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    orders.push_back({.start = start,
                      .device = setup.device,
                      .cpu_threads = setup.config.cpu_threads,
                      .spin_ns = cpu::UsableCores() >= ranks + kSpareCores ? kSpinNs : 0,
                      .spec = SpecOf(setup, rank),
                      .arena = arenas.empty() ? nullptr : arenas[rank],
                      .cache_dir = ""});
  }
  return orders;
}

// For each rank one, without pages, to be inherited.
absl::StatusOr<HostArenas> CreateArenas(int32_t ranks) {
  HostArenas arenas;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    ASSIGN_OR_RETURN(HostArena arena, HostArena::Create());
    arenas.push_back(std::make_shared<HostArena>(std::move(arena)));
  }
  return arenas;
}

absl::Status AllocateArenas(const EngineSetup& setup, HostArenas& arenas) {
  const WorkerSpec spec = SpecOf(setup, 0);
  if (spec.num_pages == 0) arenas.clear();
  for (const auto& arena : arenas) RETURN_IF_ERROR(arena->Allocate(spec.arena_shape()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineWorkers>> EngineWorkers::Find(const EngineConfig& requested,
                                                                   const std::string& gpu_driver) {
  std::unique_ptr<EngineWorkers> workers(new EngineWorkers);
  EngineConfig& config = workers->config_;
  config = requested;
  // With the cpu in place of auto: what is wrong here is wrong with any device.
  ASSIGN_OR_RETURN(const EngineSetup draft, DraftEngine(config));
  if (requested.device == "auto" && workers->FindGpu(gpu_driver)) return workers;
  config.device = draft.device;
  if (draft.config.worker_process == "on") RETURN_IF_ERROR(workers->FindProcesses(draft));
  return workers;
}

// What the GPU cannot do the cpu may.
bool EngineWorkers::FindGpu(const std::string& driver) {
  std::error_code error;
  if (config_.worker_process == "off" || !std::filesystem::exists(driver, error)) return false;
  config_.device = "cuda";
  const absl::StatusOr<EngineSetup> draft = DraftEngine(config_);
  const absl::Status found = draft.ok() ? FindProcesses(*draft) : draft.status();
  if (found.ok()) return true;
  Log(Severity::kWarning, "the GPU is not used", {{"reason", std::string(found.message())}});
  return false;
}

absl::Status EngineWorkers::FindProcesses(const EngineSetup& draft) {
  const SupervisorOptions options{.program = WorkerProgram(draft.config),
                                  .step_timeout_seconds = draft.config.worker_step_timeout_seconds};
  ASSIGN_OR_RETURN(arenas_, CreateArenas(draft.config.tensor_parallel_size));
  auto supervisor =
      std::make_unique<Supervisor>(options, OrdersFor(draft, arenas_, /*start=*/false));
  const absl::StatusOr<DeviceFacts> facts = supervisor->AwaitFacts();
  if (absl::IsNotFound(facts.status())) {
    return absl::UnavailableError(std::string(facts.status().message()) +
                                  "; it belongs beside quire-server");
  }
  if (!facts.ok()) return facts.status();
  device_ = *facts;
  supervisor_ = std::move(supervisor);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> EngineWorkers::Start(const EngineSetup& setup,
                                                                WorkerReport* report) {
  if (supervisor_ == nullptr) return StartThreads(setup, report, &arenas_);
  RETURN_IF_ERROR(AllocateArenas(setup, arenas_));
  supervisor_->Load(OrdersFor(setup, arenas_, /*start=*/true));
  absl::StatusOr<WorkerReport> ready = supervisor_->AwaitReady();
  if (absl::IsResourceExhausted(ready.status())) {
    return absl::ResourceExhaustedError(std::string(ready.status().message()) +
                                        "; somebody else may have taken memory that was free when "
                                        "this was planned\n" +
                                        setup.memory.Table());
  }
  if (!ready.ok()) return ready.status();
  *report = *std::move(ready);
  return std::make_unique<RestartingTransport>(std::move(supervisor_));
}

absl::StatusOr<std::unique_ptr<Transport>> StartThreads(const EngineSetup& setup,
                                                        WorkerReport* report, HostArenas* arenas) {
  const int32_t ranks = setup.config.tensor_parallel_size;
  HostArenas own;
  std::vector<std::unique_ptr<Backend>> backends =
      CreateCpuBackends(ranks, setup.config.cpu_threads);
  report->description = backends.front()->Describe();
  std::vector<std::unique_ptr<StepRunner>> workers;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const WorkerSpec spec = SpecOf(setup, rank);
    std::shared_ptr<HostArena> arena;
    if (spec.num_pages > 0) {
      ASSIGN_OR_RETURN(HostArena pages, HostArena::CreatePrivate(spec.arena_shape()));
      arena = own.emplace_back(std::make_shared<HostArena>(std::move(pages)));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker,
                     MakeWorker(spec, std::move(backends[rank]), std::move(arena)));
    workers.push_back(std::move(worker));
  }
  if (arenas != nullptr) *arenas = std::move(own);
  return std::make_unique<InProcessTransport>(std::move(workers), setup.config.steps_in_flight);
}

}  // namespace quire
