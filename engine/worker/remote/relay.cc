// The main thread takes frames from the other host; one thread takes the server's messages, and one
// for each ring waits for plans and copy jobs.
#include "engine/worker/remote/relay.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/base/wake_event.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/process/plan_codec.h"
#include "engine/worker/process/step_memory.h"
#include "engine/worker/process/worker_process.h"
#include "engine/worker/remote/leader_port.h"
#include "engine/worker/remote/rank_counters.h"

namespace quire {
namespace {

enum ExitCode : int { kDone = 0, kFailed = 1, kServerGone = 3 };

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A thread that is not the main one ends the process when the server is gone, and does nothing when
// the connection is: the main thread learns of that too, and says so.
class Relay {
 public:
  Relay(int32_t rank, GivenConnection given)
      : rank_(rank), link_(*given.connection), given_(std::move(given)) {
    link_.set_max_bytes(Frame::kMaxStartBytes);
  }

  // Returns when the rank has ended after its last plan.
  absl::Status Run() {
    std::thread([this] { PassMessages(); }).detach();
    for (;;) {
      if (attached_.load(std::memory_order_acquire)) {
        const auto most = static_cast<size_t>(memory_->shape().bounds.ResultBytes());
        link_.set_max_bytes(std::max(most, Frame::kMaxStartBytes));
      }
      const absl::StatusOr<Frame> frame = link_.Await();
      if (!frame.ok()) return Fault(frame.status());
      if (frame->kind == FrameKind::kEnded) return absl::OkStatus();
      RETURN_IF_ERROR(Take(*frame));
    }
  }

  absl::Status Named(const absl::Status& why) const {
    return {why.code(), given_.name + ": " + std::string(why.message())};
  }

 private:
  // To the other host.

  void PassMessages() {
    MessageReader reader;
    for (;;) {
      const absl::StatusOr<std::string> text = AwaitMessage(kWorkerSocket, reader);
      if (!text.ok()) _exit(kServerGone);
      const absl::StatusOr<WorkerOrder> order = DecodeOrder(*text);
      if (order.ok() && order->start && !Attach(*order)) _exit(kServerGone);
      link_.Send(FrameKind::kMessage, *text).IgnoreError();
    }
  }

  // The memory has its size once the server sends the order to start.
  bool Attach(const WorkerOrder& order) {
    if (attached_) return false;
    absl::StatusOr<SharedMemory> shared = SharedMemory::Map(Descriptor(kWorkerMemory));
    absl::StatusOr<SharedMemory> bell = SharedMemory::Map(Descriptor(kWorkerBell));
    if (!shared.ok() || !bell.ok()) return false;
    absl::StatusOr<StepMemory> memory =
        StepMemory::Attach(*std::move(shared), StepShapeOf(order.spec));
    if (!memory.ok() || order.spec.tp.rank != rank_) return false;
    memory_.emplace(*std::move(memory));
    bell_ = *std::move(bell);
    std::thread([this] { PassPlans(); }).detach();
    if (order.spec.num_pages > 0) {
      for (const CopyDirection direction : kCopyDirections) {
        std::thread([this, direction] { PassJobs(direction); }).detach();
      }
    }
    attached_.store(true, std::memory_order_release);
    return true;
  }

  void PassPlans() {
    const SharedRing plans = memory_->plans();
    for (uint64_t number = 0;; ++number) {
      while (plans.published() == number) plans.AwaitChange(number, /*spin_ns=*/0);
      const std::string_view slot = Text(plans.slot(number));
      const size_t bytes = EncodedBytes(plans.slot(number));
      if (!link_.Send(FrameKind::kPlan, slot.substr(0, bytes)).ok()) return;
    }
  }

  void PassJobs(CopyDirection direction) {
    const bool load = direction == CopyDirection::kLoad;
    const SharedRing jobs = memory_->copies(rank_).jobs(direction);
    for (uint64_t number = 0;; ++number) {
      while (jobs.published() == number) jobs.AwaitChange(number, /*spin_ns=*/0);
      const FrameKind kind = load ? FrameKind::kLoadJob : FrameKind::kStoreJob;
      if (!link_.Send(kind, Text(jobs.slot(number))).ok()) return;
    }
  }

  // From the other host.

  absl::Status Take(const Frame& frame) {
    switch (frame.kind) {
      case FrameKind::kMessage: return PassMessage(frame.bytes);
      case FrameKind::kOutput: return Print(frame.bytes);
      default: break;
    }
    if (!attached_.load(std::memory_order_acquire)) return Malformed();
    switch (frame.kind) {
      case FrameKind::kResult: return PublishResult(frame.bytes);
      case FrameKind::kLoadAck: return PublishAck(CopyDirection::kLoad, frame.bytes);
      case FrameKind::kStoreAck: return PublishAck(CopyDirection::kStore, frame.bytes);
      case FrameKind::kCounters: return Count(frame.bytes);
      default: return Malformed();
    }
  }

  // Malformed bytes are no fault of the operator's settings.
  static absl::Status Fault(const absl::Status& status) {
    return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
  }
  static absl::Status Malformed() {
    return absl::InternalError("sent a frame that does not belong there");
  }

  absl::Status PassMessage(const std::string& text) {
    // A failure is passed on with the node's name, by the caller.
    const absl::StatusOr<WorkerMessage> message = DecodeMessage(text);
    if (!message.ok()) return Fault(message.status());
    if (const auto* failure = std::get_if<WorkerFailure>(&*message)) return failure->status;
    if (!SendMessage(kWorkerSocket, text).ok()) _exit(kServerGone);
    return absl::OkStatus();
  }

  // The server reads this process's output.
  static absl::Status Print(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(STDERR_FILENO, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) break;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Publish(SharedRing ring, std::string_view bytes) {
    const std::span<std::byte> slot = ring.slot(ring.published());
    if (bytes.size() > slot.size()) return Malformed();
    std::memcpy(slot.data(), bytes.data(), bytes.size());
    ring.Publish();
    WakeEvent::Notify(*reinterpret_cast<std::atomic<uint32_t>*>(bell_.data()));
    return absl::OkStatus();
  }

  // Its times are by the other host's clock: they move by one distance, so that it ends now.
  absl::Status PublishResult(std::string_view bytes) {
    const SharedRing ring = memory_->results(rank_);
    if (bytes.size() > ring.slot(ring.published()).size()) return Malformed();
    if (!DecodeResult(std::as_bytes(std::span(bytes)), result_)) return Publish(ring, bytes);
    const int64_t distance_ns = SteadyNowNs() - result_.finished_ns;
    result_.started_ns += distance_ns;
    result_.enqueued_ns += distance_ns;
    result_.finished_ns += distance_ns;
    encoded_.resize(bytes.size());
    EncodeResult(result_, std::as_writable_bytes(std::span(encoded_)));
    return Publish(ring, encoded_);
  }

  absl::Status PublishAck(CopyDirection direction, std::string_view bytes) {
    if (bytes.size() != sizeof(CopyAck)) return Malformed();
    return Publish(memory_->copies(rank_).acks(direction), bytes);
  }

  absl::Status Count(std::string_view bytes) {
    RankCounters counters;
    if (bytes.size() != sizeof counters) return Malformed();
    std::memcpy(&counters, bytes.data(), sizeof counters);
    Heartbeat& heartbeat = memory_->heartbeat(rank_);
    heartbeat.launched.store(counters.launched, std::memory_order_relaxed);
    heartbeat.finished.store(counters.finished, std::memory_order_relaxed);
    heartbeat.collectives.store(counters.collectives, std::memory_order_relaxed);
    heartbeat.at_ns.store(SteadyNowNs(), std::memory_order_relaxed);
    memory_->copies(rank_).ready_pages().store(static_cast<int32_t>(counters.ready_pages),
                                               std::memory_order_release);
    return absl::OkStatus();
  }

  const int32_t rank_;
  Connection& link_;
  const GivenConnection given_;
  std::optional<StepMemory> memory_;  // written before `attached_`
  SharedMemory bell_;
  // Of the thread that takes frames.
  StepResult result_;
  std::string encoded_;
  std::atomic<bool> attached_{false};
};

}  // namespace

int RunRelay(int32_t rank) {
  absl::StatusOr<GivenConnection> given = AskForConnection(kWorkerRelay);
  if (!given.ok()) return kServerGone;
  // Not destroyed: its threads run until the process is gone.
  auto* const relay = new Relay(rank, *std::move(given));
  const absl::Status status = relay->Run();
  if (status.ok()) return kDone;
  const WorkerFailure failure{relay->Named(status)};
  return SendMessage(kWorkerSocket, EncodeMessage(failure)).ok() ? kFailed : kServerGone;
}

}  // namespace quire
