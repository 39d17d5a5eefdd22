// Which device, which kind of ranks; and the orders that worker processes get.
#include "engine/engine_workers.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/worker/in_process_transport.h"
#include "kernels/cpu/host_limits.h"

namespace quire {
namespace {

// Where the driver shows the first GPU: without it there is no use in asking.
constexpr char kFirstGpu[] = "/dev/nvidia0";
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

std::vector<WorkerOrder> OrdersFor(const EngineSetup& setup, bool start) {
  const int32_t ranks = setup.config.tensor_parallel_size;
  std::vector<WorkerOrder> orders;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    orders.push_back({.start = start,
                      .device = setup.device,
                      .cpu_threads = setup.config.cpu_threads,
                      .spin_ns = cpu::UsableCores() >= ranks + kSpareCores ? kSpinNs : 0,
                      .spec = SpecOf(setup, rank),
                      .cache_dir = ""});
  }
  return orders;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineWorkers>> EngineWorkers::Find(const EngineConfig& requested) {
  std::unique_ptr<EngineWorkers> workers(new EngineWorkers);
  EngineConfig& config = workers->config_;
  config = requested;
  // With the cpu in place of auto: what is wrong here is wrong with any device.
  ASSIGN_OR_RETURN(const EngineSetup draft, DraftEngine(config));
  if (requested.device == "auto" && workers->FindGpu()) return workers;
  config.device = draft.device;
  if (draft.config.worker_process == "on") RETURN_IF_ERROR(workers->FindProcesses(draft));
  return workers;
}

// What the GPU cannot do the cpu may.
bool EngineWorkers::FindGpu() {
  std::error_code error;
  if (config_.worker_process == "off" || !std::filesystem::exists(kFirstGpu, error)) return false;
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
  auto supervisor = std::make_unique<Supervisor>(options, OrdersFor(draft, /*start=*/false));
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
  if (supervisor_ == nullptr) return StartThreads(setup, report);
  supervisor_->Load(OrdersFor(setup, /*start=*/true));
  ASSIGN_OR_RETURN(*report, supervisor_->AwaitReady());
  return std::make_unique<RestartingTransport>(std::move(supervisor_));
}

absl::StatusOr<std::unique_ptr<Transport>> StartThreads(const EngineSetup& setup,
                                                        WorkerReport* report) {
  const int32_t ranks = setup.config.tensor_parallel_size;
  std::vector<std::unique_ptr<Backend>> backends =
      CreateCpuBackends(ranks, setup.config.cpu_threads);
  report->description = backends.front()->Describe();
  std::vector<std::unique_ptr<StepRunner>> workers;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker,
                     MakeWorker(SpecOf(setup, rank), std::move(backends[rank])));
    workers.push_back(std::move(worker));
  }
  return std::make_unique<InProcessTransport>(std::move(workers), setup.config.steps_in_flight);
}

}  // namespace quire
