// Describe, load, execute; and a thread that ends the process with its server.
#include "engine/worker/program/worker_program.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/config_quantization.h"
#include "engine/worker/process/worker_process.h"
#include "engine/worker/program/rank_loop.h"
#include "engine/worker/remote/relay.h"
#include "flags/refusal_exit.h"

namespace quire {
namespace {

enum ExitCode : int { kDone = 0, kFailed = 1, kNotAWorker = 2, kServerGone = 3, kRefused = 6 };

// The number behind "--name=".
std::optional<int> Flag(int argc, char** argv, std::string_view name) {
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (!argument.starts_with(name)) continue;
    argument.remove_prefix(name.size());
    int number = 0;
    const auto [end, error] =
        std::from_chars(argument.data(), argument.data() + argument.size(), number);
    if (error == std::errc() && end == argument.data() + argument.size()) return number;
  }
  return std::nullopt;
}

bool StartedByAServer(std::optional<int> server) {
  struct stat info {};
  return server.has_value() && fstat(kWorkerSocket, &info) == 0 && S_ISSOCK(info.st_mode);
}

// This process ends with its server, and ignores the signals that a terminal sends to both.
bool BindLifeTo(int server) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == server;
}

// The server's orders, read by a thread for as long as the server lives.
class Orders {
 public:
  Orders() {
    std::thread([this] { Read(); }).detach();
  }

  absl::StatusOr<WorkerOrder> Await() {
    ASSIGN_OR_RETURN(WorkerOrder order, DecodeOrder(AwaitText()));
    WorkerSpec& spec = order.spec;
    ASSIGN_OR_RETURN(spec.model, ModelConfig::Load(spec.model_dir));
    RETURN_IF_ERROR(ChooseQuantization(spec.quantization, spec.model));
    return order;
  }
  // The next message, of any kind.
  std::string AwaitText() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !texts_.empty(); });
    std::string text = std::move(texts_.front());
    texts_.pop_front();
    return text;
  }

 private:
  void Read() {
    MessageReader reader;
    for (;;) {
      absl::StatusOr<std::string> text = AwaitMessage(kWorkerSocket, reader);
      if (!text.ok()) _exit(kServerGone);
      const std::lock_guard lock(mutex_);
      texts_.push_back(*std::move(text));
      changed_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> texts_;
};

// The exchange between ranks, through their server. If the server is gone or answers malformed
// bytes, the process ends, as it would anywhere else.
class ServerExchange final : public RankExchange {
 public:
  ServerExchange(Orders& orders, int32_t ranks)
      : orders_(orders), ranks_(static_cast<size_t>(ranks)) {}

  std::vector<std::string> Share(const std::string& bytes) override {
    if (!SendMessage(kWorkerSocket, EncodeMessage(WorkerShare{bytes})).ok()) _exit(kServerGone);
    absl::StatusOr<std::vector<std::string>> shares = DecodeShares(orders_.AwaitText());
    if (!shares.ok() || shares->size() != ranks_) _exit(kServerGone);
    return *std::move(shares);
  }

  // The server kills the group once it has seen which rank ended, and its reason is the better one;
  // without an end, as when the network between two hosts fails, this is the only one.
  void Lost(const std::string& why) override {
    poll(nullptr, 0, kLostMs);
    const WorkerFailure failure{absl::UnavailableError("it has lost " + why)};
    SendMessage(kWorkerSocket, EncodeMessage(failure)).IgnoreError();
    _exit(kFailed);
  }

 private:
  static constexpr int kLostMs = 2000;

  Orders& orders_;
  const size_t ranks_;
};

class Program {
 public:
  Program(std::span<const WorkerDevice> devices, const std::string& cache_dir)
      : devices_(devices), cache_dir_(cache_dir) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const WorkerOrder ask, AwaitOrder(/*start=*/false));
    ASSIGN_OR_RETURN(const WorkerDevice device, DeviceOf(ask));
    ASSIGN_OR_RETURN(const DeviceFacts facts, device.describe(ask));
    RETURN_IF_ERROR(Send(facts));
    ASSIGN_OR_RETURN(const WorkerOrder order, AwaitOrder(/*start=*/true));
    return Serve(device, order);
  }

 private:
  absl::StatusOr<WorkerOrder> AwaitOrder(bool start) {
    ASSIGN_OR_RETURN(WorkerOrder order, orders_->Await());
    if (order.start != start) return absl::InternalError("the server sent its orders out of order");
    order.cache_dir = cache_dir_;
    return order;
  }

  absl::StatusOr<WorkerDevice> DeviceOf(const WorkerOrder& order) const {
    for (const WorkerDevice& device : devices_) {
      if (device.kind == order.device) return device;
    }
    return absl::UnimplementedError("--device " + order.device + " is not in this build");
  }

  static absl::Status Send(const WorkerMessage& message) {
    return SendMessage(kWorkerSocket, EncodeMessage(message));
  }

  static absl::Status AttachArena(WorkerOrder& order) {
    ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(Descriptor(kWorkerArena)));
    ASSIGN_OR_RETURN(HostArena arena,
                     HostArena::Attach(std::move(memory), order.spec.arena_shape()));
    order.arena = std::make_shared<HostArena>(std::move(arena));
    return absl::OkStatus();
  }

  absl::Status Serve(const WorkerDevice& device, WorkerOrder order) {
    ASSIGN_OR_RETURN(SharedMemory shared, SharedMemory::Map(Descriptor(kWorkerMemory)));
    ASSIGN_OR_RETURN(const StepMemory memory,
                     StepMemory::Attach(std::move(shared), StepShapeOf(order.spec)));
    ASSIGN_OR_RETURN(const SharedMemory bell, SharedMemory::Map(Descriptor(kWorkerBell)));
    if (bell.bytes() < static_cast<int64_t>(sizeof(std::atomic<uint32_t>))) {
      return absl::InternalError("the bell has no memory");
    }
    if (order.spec.num_pages > 0) RETURN_IF_ERROR(AttachArena(order));
    const TpInfo tp = order.spec.tp;
    ServerExchange exchange(*orders_, tp.size);
    order.place = {.rank = tp.rank,
                   .ranks = tp.size,
                   .one_host = order.host.empty(),
                   .host = order.host,
                   .exchange = &exchange,
                   .collectives = &memory.heartbeat(tp.rank).collectives};
    WorkerReport report;
    ASSIGN_OR_RETURN(const std::unique_ptr<StepPipeline> pipeline, device.make(order, &report));
    report.late_masks = pipeline->AttachMasks(memory.masks());
    RETURN_IF_ERROR(Send(report));
    RankLoop loop(memory, *reinterpret_cast<std::atomic<uint32_t>*>(bell.data()), *pipeline,
                  {.rank = order.spec.tp.rank, .spin_ns = order.spin_ns});
    return loop.Run();
  }

  const std::span<const WorkerDevice> devices_;
  const std::string cache_dir_;
  // Not destroyed: its thread reads until the process is gone.
  Orders* const orders_ = new Orders;
};

}  // namespace

int RunWorkerProgram(int argc, char** argv, std::span<const WorkerDevice> devices,
                     const std::string& cache_dir) {
  ExitOnRefusal(kRefused);
  const std::optional<int> server = Flag(argc, argv, "--server=");
  if (!StartedByAServer(server)) {
    Log(Severity::kError,
        "quire-worker is a part of quire-server, which starts it; it does nothing "
        "by itself. Run quire-server.");
    return kNotAWorker;
  }
  if (!BindLifeTo(*server)) return kServerGone;
  if (Flag(argc, argv, "--relay=")) return RunRelay(Flag(argc, argv, "--rank=").value_or(0));
  const absl::Status status = Program(devices, cache_dir).Run();
  if (status.ok()) return kDone;
  // The server tells the operator, if it still runs.
  return SendMessage(kWorkerSocket, EncodeMessage(WorkerFailure{status})).ok() ? kFailed
                                                                               : kServerGone;
}

}  // namespace quire
