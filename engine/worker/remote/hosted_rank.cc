// The calling thread takes frames and the worker's messages; a second one waits for the worker's
// bell and passes results, acks and counters.
#include "engine/worker/remote/hosted_rank.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

constexpr int64_t kBellBytes = 4096;
// How often counters are compared: while steps are in flight the leader watches them.
constexpr int64_t kBusyLookNs = 10'000'000;
constexpr int64_t kIdleLookNs = 100'000'000;
// The sizes that an order may ask of this host, far above any device.
constexpr double kMaxBlockBytes = 0x1p40;
constexpr double kMaxArenaBytes = 0x1p46;
constexpr int32_t kMaxRows = 1 << 16;
constexpr int32_t kMaxTokens = 1 << 24;
constexpr int32_t kMaxBlocks = 1 << 28;

bool Readable(int fd) {
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&ready, 1, 0) > 0;
}

absl::Status Malformed(const std::string& what) {
  return absl::InternalError("the leader sent " + what);
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::Status CheckSizes(const WorkerSpec& spec) {
  const KvLayout& kv = spec.kv_layout;
  const double block = 1.0 * kv.num_layers * kv.num_kv_heads * kv.head_dim * kv.block_size;
  const bool fits =
      block >= 1 && block <= kMaxBlockBytes && block * spec.num_pages <= kMaxArenaBytes &&
      spec.worker.max_num_seqs <= kMaxRows && spec.worker.step_guesses <= kMaxRows &&
      spec.worker.max_num_batched_tokens <= kMaxTokens && spec.num_blocks <= kMaxBlocks;
  return fits ? absl::OkStatus() : Malformed("an order with impossible sizes");
}

}  // namespace

HostedRank::HostedRank(Connection& link, StoredPages& pages, const Options& options)
    : link_(link), pages_(pages), options_(options) {
  link_.set_max_bytes(Frame::kMaxStartBytes);
}

HostedRank::~HostedRank() { StopPassing(); }

absl::Status HostedRank::Run(int stop_fd) {
  const absl::Status status = Serve(stop_fd);
  // A node that ends waits for no leader.
  if (absl::IsCancelled(status)) shutdown(link_.fd(), SHUT_RDWR);
  StopPassing();
  if (ended_well_) {
    link_.Send(FrameKind::kEnded, "").IgnoreError();
    return absl::OkStatus();
  }
  // The leader may be the cause, or gone.
  link_.Send(FrameKind::kMessage, EncodeMessage(WorkerFailure{status})).IgnoreError();
  return status;
}

absl::Status HostedRank::Serve(int stop_fd) {
  while (!ended_well_) {
    RETURN_IF_ERROR(TakeFrames());
    std::array<pollfd, 5> fds{{{.fd = stop_fd, .events = POLLIN, .revents = 0},
                               {.fd = link_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = -1, .events = POLLIN, .revents = 0},
                               {.fd = -1, .events = POLLIN, .revents = 0},
                               {.fd = -1, .events = POLLIN, .revents = 0}}};
    if (process_) {
      fds[2].fd = process_->pidfd();
      if (socket_open_) fds[3].fd = process_->socket();
      if (output_open_) fds[4].fd = process_->output();
    }
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return absl::CancelledError("this node is ending");
    if (fds[1].revents != 0) RETURN_IF_ERROR(link_.Receive());
    if (process_) RETURN_IF_ERROR(ReadWorker());
  }
  return absl::OkStatus();
}

// From the leader.

absl::Status HostedRank::TakeFrames() {
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<Frame> frame, link_.Next());
    if (!frame) return absl::OkStatus();
    RETURN_IF_ERROR(Take(*frame));
  }
}

absl::Status HostedRank::Take(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kMessage: return TakeMessage(frame.bytes);
    case FrameKind::kPlan: return TakePlan(frame.bytes);
    case FrameKind::kLoadJob: return TakeJob(CopyDirection::kLoad, frame.bytes);
    case FrameKind::kStoreJob: return TakeJob(CopyDirection::kStore, frame.bytes);
    default: return Malformed("a frame that does not belong there");
  }
}

// Orders are completed with the facts of this host; any other message is the worker's.
absl::Status HostedRank::TakeMessage(const std::string& text) {
  absl::StatusOr<WorkerOrder> order = DecodeOrder(text);
  if (!order.ok()) {
    if (!process_) return Malformed("no order: " + std::string(order.status().message()));
    SendMessage(process_->socket(), text).IgnoreError();  // ReadWorker notices its end
    return absl::OkStatus();
  }
  const bool mine =
      order->spec.tp.rank == options_.grant.rank && order->spec.tp.size == options_.grant.ranks;
  if (!mine || order->start != process_.has_value() || memory_) {
    return Malformed("an unexpected order");
  }
  RETURN_IF_ERROR(order->start ? AllocateMemory(order->spec) : StartWorker());
  order->host = link_.local_host();
  order->local_rank = options_.local;
  SendMessage(process_->socket(), EncodeOrder(*order)).IgnoreError();
  return absl::OkStatus();
}

absl::Status HostedRank::StartWorker() {
  ASSIGN_OR_RETURN(unsized_, SharedMemory::Create("quire steps"));
  ASSIGN_OR_RETURN(SharedMemory bell, SharedMemory::Create("quire bell"));
  RETURN_IF_ERROR(bell.Allocate(kBellBytes));
  bell_ = std::make_shared<SharedMemory>(std::move(bell));
  ASSIGN_OR_RETURN(WorkerProcess process, WorkerProcess::Start({.program = options_.program,
                                                                .rank = options_.grant.rank,
                                                                .memory_fd = unsized_.fd(),
                                                                .bell_fd = bell_->fd(),
                                                                .arena_fd = pages_.arena().fd()}));
  process_.emplace(std::move(process));
  Log(Severity::kInfo, "worker started",
      {{"rank", options_.grant.rank}, {"pid", static_cast<int>(process_->pid())}});
  return absl::OkStatus();
}

absl::Status HostedRank::AllocateMemory(const WorkerSpec& spec) {
  RETURN_IF_ERROR(CheckSizes(spec));
  if (spec.num_pages > 0) RETURN_IF_ERROR(pages_.Allocate(spec.arena_shape()));
  ASSIGN_OR_RETURN(StepMemory memory, StepMemory::Create(std::move(unsized_), StepShapeOf(spec)));
  memory_.emplace(std::move(memory));
  spec_ = spec;
  const auto plan_bytes = static_cast<size_t>(memory_->shape().bounds.PlanBytes());
  link_.set_max_bytes(std::max(plan_bytes, Frame::kMaxStartBytes));
  passing_ = std::thread([this] { PassResults(); });
  return absl::OkStatus();
}

absl::Status HostedRank::TakePlan(std::string_view bytes) {
  if (!memory_) return Malformed("a plan before its order");
  SharedRing plans = memory_->plans();
  const uint64_t number = plans.published();
  const std::span<std::byte> slot = plans.slot(number);
  const auto depth = static_cast<uint64_t>(memory_->shape().depth);
  // The slots are one more than the steps in flight, for the last plan.
  const bool fits = bytes.size() <= slot.size() &&
                    number - passed_results_.load(std::memory_order_acquire) <= depth;
  if (!fits) return Malformed("a plan that does not fit");
  std::memcpy(slot.data(), bytes.data(), bytes.size());
  plans.Publish();
  return absl::OkStatus();
}

bool HostedRank::Valid(const CopyJobMessage& job) const {
  if (job.count < 0 || job.count > CopyJob::kMaxCopies) return false;
  for (int32_t i = 0; i < job.count; ++i) {
    const auto [block, page] = job.copies[i];
    if (block < 0 || block >= spec_->num_blocks) return false;
    if (page < 0 || page >= spec_->num_pages) return false;
  }
  return true;
}

absl::Status HostedRank::TakeJob(CopyDirection direction, std::string_view bytes) {
  Lane::Job job;
  if (!memory_ || bytes.size() != sizeof job.message) return Malformed("a malformed copy job");
  std::memcpy(&job.message, bytes.data(), sizeof job.message);
  if (!Valid(job.message)) return Malformed("an impossible copy job");
  {
    const std::lock_guard lock(mutex_);
    Lane& lane = lanes_[static_cast<size_t>(direction)];
    if (lane.jobs.size() >= size_t{CopyJob::kMaxInFlight}) return Malformed("too many copy jobs");
    job.refused = direction == CopyDirection::kLoad && !pages_.Hold(job.message);
    pages_.Begin(direction, job.message);
    // The last message has no ack.
    if (job.message.count > 0) lane.jobs.push_back(job);
  }
  if (job.refused) {
    WakeEvent::Notify(*reinterpret_cast<std::atomic<uint32_t>*>(bell_->data()));
    return absl::OkStatus();
  }
  SharedRing jobs = memory_->copies(options_.grant.rank).jobs(direction);
  std::memcpy(jobs.slot(jobs.published()).data(), bytes.data(), bytes.size());
  jobs.Publish();
  return absl::OkStatus();
}

// From the worker.

absl::Status HostedRank::ReadWorker() {
  // Asked first: if it has ended, the reads below get everything it ever wrote.
  const std::string ending = process_->Ending();
  while (socket_open_ && Readable(process_->socket())) {
    socket_open_ = inbox_.ReadFrom(process_->socket()).ok();
    while (const std::optional<std::string> text = inbox_.Next()) {
      RETURN_IF_ERROR(link_.Send(FrameKind::kMessage, *text));
    }
  }
  std::array<char, 4096> piece;
  while (output_open_ && Readable(process_->output())) {
    const ssize_t got = read(process_->output(), piece.data(), piece.size());
    output_open_ = got > 0;
    if (!output_open_) break;
    RETURN_IF_ERROR(link_.Send(FrameKind::kOutput, {piece.data(), static_cast<size_t>(got)}));
  }
  if (ending.empty()) return absl::OkStatus();
  // Only its last plan ends it like that.
  ended_well_ = ending == "exited with code 0";
  return ended_well_ ? absl::OkStatus()
                     : absl::UnavailableError("its worker (pid " + std::to_string(process_->pid()) +
                                              ") " + ending);
}

void HostedRank::PassResults() {
  WakeEvent wake;
  wake.Share({bell_, reinterpret_cast<std::atomic<uint32_t>*>(bell_->data())});
  bool stopped = false;
  while (!stopped) {
    // Read first, so that results before it pass below.
    stopped = stop_.load(std::memory_order_acquire);
    if (!PassNew()) {
      // The other thread sees the end of the connection.
      shutdown(link_.fd(), SHUT_RDWR);
      return;
    }
    const bool busy = memory_->plans().published() != passed_results_.load();
    if (!stopped) wake.Wait(SteadyNowNs() + (busy ? kBusyLookNs : kIdleLookNs));
  }
}

// False when the connection is lost or the worker's counts are impossible.
bool HostedRank::PassNew() {
  const SharedRing results = memory_->results(options_.grant.rank);
  uint64_t passed = passed_results_.load(std::memory_order_relaxed);
  const uint64_t published = results.published();
  if (published - passed > static_cast<uint64_t>(memory_->shape().depth)) return false;
  for (; passed < published; ++passed) {
    const std::span<const std::byte> slot = results.slot(passed);
    // Counted first: the answer to this result may be the next plan.
    passed_results_.store(passed + 1, std::memory_order_release);
    if (!link_.Send(FrameKind::kResult, Text(slot.first(EncodedBytes(slot)))).ok()) return false;
  }
  return PassAcks(CopyDirection::kLoad) && PassAcks(CopyDirection::kStore) && PassCounters();
}

bool HostedRank::PassAcks(CopyDirection direction) {
  const bool load = direction == CopyDirection::kLoad;
  const SharedRing acks = memory_->copies(options_.grant.rank).acks(direction);
  Lane& lane = lanes_[static_cast<size_t>(direction)];
  for (;;) {
    CopyAck ack;
    {
      const std::lock_guard lock(mutex_);
      if (lane.jobs.empty()) return true;
      const Lane::Job& job = lane.jobs.front();
      if (job.refused) {
        // The page is not what the leader believes: it then drops it.
        ack = {.job = job.message.job, .status = CopyStatus::kCorrupt};
      } else {
        if (acks.published() == lane.acked) return true;
        std::memcpy(&ack, acks.slot(lane.acked++).data(), sizeof ack);
        if (!load) pages_.End(job.message, ack);
      }
      lane.jobs.pop_front();
    }
    const FrameKind kind = load ? FrameKind::kLoadAck : FrameKind::kStoreAck;
    if (!link_.Send(kind, {reinterpret_cast<const char*>(&ack), sizeof ack}).ok()) return false;
  }
}

bool HostedRank::PassCounters() {
  const Heartbeat& heartbeat = memory_->heartbeat(options_.grant.rank);
  const CopyRings copies = memory_->copies(options_.grant.rank);
  const RankCounters now{.launched = heartbeat.launched.load(),
                         .finished = heartbeat.finished.load(),
                         .collectives = heartbeat.collectives.load(),
                         .ready_pages = copies.ready_pages().load(std::memory_order_acquire)};
  if (now == counters_) return true;
  counters_ = now;
  return link_.Send(FrameKind::kCounters, {reinterpret_cast<const char*>(&now), sizeof now}).ok();
}

void HostedRank::StopPassing() {
  if (!passing_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  WakeEvent::Notify(*reinterpret_cast<std::atomic<uint32_t>*>(bell_->data()));
  passing_.join();
}

}  // namespace quire
