// The choice of device and kind of ranks, and the orders for worker processes.
#include "engine/engine_workers.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
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

// If the machine has spare cores, a worker's step thread spins for the time of a step of the
// smallest model before it sleeps.
constexpr int64_t kSpinNs = 200'000;
constexpr int kSpareCores = 4;  // the scheduler, gRPC, a delivery shard and one for the rest

// Threads beside those that compute: gRPC's, texts, delivery, copies, the scheduler and the rest.
constexpr int kOtherThreads = 64;

// A thread that the system refuses would end the process, so their number is tried beforehand.
absl::Status CheckThreads(int32_t cpu_threads) {
  const int wanted = cpu_threads + kOtherThreads;
  const int startable = cpu::StartableThreads(wanted);
  if (startable == wanted) return absl::OkStatus();
  const std::string less =
      startable > kOtherThreads
          ? "use at most " + std::to_string(startable - kOtherThreads) + ", or "
          : "";
  return absl::InvalidArgumentError(
      "--cpu-threads " + std::to_string(cpu_threads) + ": the system lets this process start " +
      std::to_string(startable) + " more threads, and the server needs " +
      std::to_string(kOtherThreads) + " beside these; " + less +
      "raise the limit (ulimit -u, ulimit -v, pids.max of the control group)");
}

// quire-worker lies beside this program.
std::string WorkerProgram(const EngineConfig& config) {
  if (!config.worker_program.empty()) return config.worker_program;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "quire-worker").string();
}

// The ranks of each node. A follower's own settings may say fewer ranks than nodes.
int32_t LocalRanks(const EngineConfig& config) {
  return std::max(1, config.tensor_parallel_size / config.nnodes);
}

// Of all ranks; without a `port` only of those of this host. A rank of another host has its arena
// there.
std::vector<WorkerOrder> OrdersFor(const EngineSetup& setup, const HostArenas& arenas,
                                   const std::shared_ptr<LeaderPort>& port, bool start) {
  const int32_t local = LocalRanks(setup.config);
  const int32_t ranks = port == nullptr ? local : setup.config.tensor_parallel_size;
  std::vector<WorkerOrder> orders;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const bool remote = port != nullptr && port->Remote(rank);
    WorkerOrder& order = orders.emplace_back();
    order = {.start = start,
             .device = setup.device,
             // A worker takes its share among all ranks.
             .cpu_threads = setup.config.cpu_threads * (ranks / local),
             .spin_ns = cpu::UsableCores() >= local + kSpareCores ? kSpinNs : 0,
             .spec = SpecOf(setup, rank),
             .local_rank = rank};
    if (port != nullptr) order.host = port->host();
    if (!remote && !arenas.empty()) order.arena = arenas[rank];
    // Keeps the port while a relay may be started.
    if (remote) order.relay = {port, &port->relay_end(rank)};
  }
  return orders;
}

// One arena per rank of this host, without pages, which the rank's process inherits.
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
                                                                   const std::string& gpu_driver,
                                                                   Reach reach) {
  std::unique_ptr<EngineWorkers> workers(new EngineWorkers);
  EngineConfig& config = workers->config_;
  config = requested;
  // Drafted for the cpu in place of auto: an error here is an error on any device.
  ASSIGN_OR_RETURN(const EngineSetup draft, DraftEngine(config));
  if (config.nnodes > 1 && reach == Reach::kAllNodes) RETURN_IF_ERROR(workers->AwaitNodes());
  if (requested.device == "auto" && workers->FindGpu(gpu_driver)) return workers;
  config.device = draft.device;
  if (draft.device == "cpu") RETURN_IF_ERROR(CheckThreads(draft.config.cpu_threads));
  if (draft.config.worker_process == "on") RETURN_IF_ERROR(workers->FindProcesses(draft));
  return workers;
}

bool EngineWorkers::FindGpu(const std::string& driver) {
  std::error_code error;
  if (!std::filesystem::exists(driver, error)) {
    device_reason_ = "this machine has no GPU driver (" + driver + ")";
    Log(Severity::kInfo, "--device auto takes the CPU", {{"reason", device_reason_}});
    return false;
  }
  absl::Status found =
      absl::InvalidArgumentError("--worker-process off: ranks on a GPU are processes of their own");
  if (config_.worker_process != "off") {
    config_.device = "cuda";
    const absl::StatusOr<EngineSetup> draft = DraftEngine(config_);
    found = draft.ok() ? FindProcesses(*draft) : draft.status();
  }
  if (found.ok()) {
    device_reason_ = "the GPU can run this model";
    return true;
  }
  device_reason_ = std::string(found.message());
  std::istringstream reasons(device_reason_);
  for (std::string line; std::getline(reasons, line);) {
    Log(Severity::kWarning, "--device auto takes the CPU", {{"reason", line}});
  }
  return false;
}

absl::Status EngineWorkers::AwaitNodes() {
  LeaderPort::Options options{.address = config_.leader_address,
                              .nodes = config_.nnodes,
                              .ranks = config_.tensor_parallel_size};
  if (!config_.group_key_file.empty()) {
    ASSIGN_OR_RETURN(options.key, GroupKey::Read(config_.group_key_file));
  }
  ASSIGN_OR_RETURN(port_, LeaderPort::Start(options));
  port_->AwaitNodes();
  return absl::OkStatus();
}

absl::Status EngineWorkers::FindProcesses(const EngineSetup& draft) {
  SupervisorOptions options{.program = WorkerProgram(draft.config),
                            .step_timeout_seconds = draft.config.worker_step_timeout_seconds,
                            .max_failures = draft.config.max_worker_deaths};
  if (port_ != nullptr) options.may_start = [port = port_] { return port->Complete(); };
  ASSIGN_OR_RETURN(arenas_, CreateArenas(LocalRanks(draft.config)));
  auto supervisor =
      std::make_unique<Supervisor>(options, OrdersFor(draft, arenas_, port_, /*start=*/false));
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

absl::StatusOr<std::unique_ptr<Transport>> EngineWorkers::Start(
    const EngineSetup& setup, WorkerReport* report, std::function<absl::Status()> check) {
  if (supervisor_ == nullptr) return StartThreads(setup, report, &arenas_);
  RETURN_IF_ERROR(AllocateArenas(setup, arenas_));
  supervisor_->Load(OrdersFor(setup, arenas_, port_, /*start=*/true), std::move(check));
  absl::StatusOr<WorkerReport> ready = supervisor_->AwaitReady();
  if (absl::IsResourceExhausted(ready.status())) {
    return absl::ResourceExhaustedError(std::string(ready.status().message()) +
                                        "; another process may have taken memory since the "
                                        "plan was made\n" +
                                        setup.memory.Table());
  }
  if (!ready.ok()) return ready.status();
  *report = *std::move(ready);
  // Other hosts' arenas cannot be read here, and a part of a session's KV is useless.
  if (port_ != nullptr) arenas_.clear();
  return std::make_unique<RestartingTransport>(std::move(supervisor_));
}

absl::StatusOr<std::unique_ptr<NodeAgent>> FollowLeader(const EngineConfig& config) {
  NodeAgent::Options options{.leader_address = config.leader_address,
                             .nodes = config.nnodes,
                             .node = config.node_rank,
                             .program = WorkerProgram(config)};
  if (!config.group_key_file.empty()) {
    ASSIGN_OR_RETURN(options.key, GroupKey::Read(config.group_key_file));
  }
  return NodeAgent::Start(options);
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
  const MaskBoard::Shape board{.depth = setup.config.steps_in_flight,
                               .masks = setup.config.max_num_seqs,
                               .words = static_cast<int32_t>(MaskWords(setup.model.vocab_size))};
  return std::make_unique<InProcessTransport>(std::move(workers), setup.config.steps_in_flight,
                                              board);
}

}  // namespace quire
