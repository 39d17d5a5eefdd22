// One thread that waits for the group's descriptors, the clock and the calls of other threads.
#include "engine/worker/process/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/worker/process/shared_memory_transport.h"
#include "kernels/check.h"

namespace quire {
namespace {

// How often the progress of a group is checked: eight times within the step timeout, and at
// least once a second.
constexpr double kLooksPerTimeout = 8;
constexpr double kMaxLookSeconds = 1;
// How often a group that may not start asks again.
constexpr double kMayStartSeconds = 0.02;
constexpr int64_t kBellBytes = 4096;

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

struct Bell {
  std::shared_ptr<SharedMemory> memory;
  std::shared_ptr<std::atomic<uint32_t>> word;
};

absl::StatusOr<Bell> MakeBell() {
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create("quire bell"));
  RETURN_IF_ERROR(memory.Allocate(kBellBytes));
  auto shared = std::make_shared<SharedMemory>(std::move(memory));
  auto* word = reinterpret_cast<std::atomic<uint32_t>*>(shared->data());
  return Bell{shared, {shared, word}};
}

}  // namespace

Supervisor::Supervisor(const SupervisorOptions& options, std::vector<WorkerOrder> describe)
    : options_(options),
      describe_(std::move(describe)),
      nudge_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const absl::StatusOr<Bell> bell = MakeBell();
  if (!bell.ok() || nudge_.get() < 0) {
    const std::string why = bell.ok() ? "eventfd: " + std::string(strerror(errno))
                                      : std::string(bell.status().message());
    facts_ = absl::ResourceExhaustedError("cannot watch worker processes: " + why);
    return;
  }
  bell_ = bell->word;
  bell_fd_ = bell->memory->fd();
  thread_ = std::thread([this] { Run(); });
}

Supervisor::~Supervisor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Nudge();
  if (thread_.joinable()) thread_.join();
}

// Called by other threads.

absl::StatusOr<DeviceFacts> Supervisor::AwaitFacts() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return facts_.has_value(); });
  return *facts_;
}

void Supervisor::Load(std::vector<WorkerOrder> start, std::function<absl::Status()> check) {
  CHECK_EQ(start.size(), describe_.size());
  {
    const std::lock_guard lock(mutex_);
    start_ = std::move(start);
    check_ = std::move(check);
  }
  Nudge();
}

absl::StatusOr<WorkerReport> Supervisor::AwaitReady() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return report_.has_value(); });
  return *report_;
}

void Supervisor::SetWake(WakeEvent* wake) {
  wake->Share(bell_);
  const std::lock_guard lock(mutex_);
  wake_ = wake;
}

std::unique_ptr<Transport> Supervisor::Take() {
  const std::lock_guard lock(mutex_);
  if (fresh_ == nullptr) return nullptr;
  fault_.clear();
  taken_ = true;
  const MaskBoard masks = (*report_)->late_masks ? fresh_->masks() : MaskBoard();
  return std::make_unique<SharedMemoryTransport>(std::exchange(fresh_, nullptr), bell_,
                                                 start_.front().spec.worker.vocab_size, masks);
}

std::string Supervisor::Fault() {
  const std::lock_guard lock(mutex_);
  return fault_;
}

std::string Supervisor::End() {
  const std::lock_guard lock(mutex_);
  return end_;
}

void Supervisor::Condemn(const std::string& why) {
  std::unique_lock lock(mutex_);
  condemned_ = why;
  Nudge();
  changed_.wait(lock, [this] { return !taken_; });
}

void Supervisor::Nudge() {
  if (!thread_.joinable()) return;  // the constructor failed
  const uint64_t one = 1;
  CHECK_EQ(write(nudge_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
}

// The thread.

void Supervisor::Run() {
  while (TakeRequests()) {
    if (group_ == nullptr && SteadyNowNs() >= start_at_ns_) StartGroup();
    if (group_ != nullptr) FollowGroup();
    Wait();
  }
  // A group that was not taken has no transport to send it the last plan.
  const bool taken = [this] {
    const std::lock_guard lock(mutex_);
    return taken_;
  }();
  if (group_ != nullptr && taken) group_->AwaitEnd(options_.end_seconds);
  group_.reset();
}

// False once the destructor runs.
bool Supervisor::TakeRequests() {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(nudge_.get(), &ignored, sizeof ignored);
  std::string condemned;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    // Condemn means the group that was taken.
    if (taken_) condemned.swap(condemned_);
    condemned_.clear();
  }
  if (!condemned.empty() && group_ != nullptr) group_->Condemn(absl::InternalError(condemned));
  return true;
}

void Supervisor::StartGroup() {
  {
    const std::lock_guard lock(mutex_);
    if (!end_.empty()) return;
  }
  if (options_.may_start && !options_.may_start()) {
    start_at_ns_ = SteadyNowNs() + Nanoseconds(kMayStartSeconds);
    return;
  }
  absl::StatusOr<std::unique_ptr<WorkerGroup>> group =
      WorkerGroup::Start(options_.program, describe_, bell_fd_);
  if (!group.ok()) return Bury(group.status());
  group_ = *std::move(group);
}

void Supervisor::FollowGroup() {
  using State = WorkerGroup::State;
  const State before = group_->state();
  group_->Handle();
  if (group_->state() == State::kDescribed) {
    std::vector<WorkerOrder> start;
    {
      const std::lock_guard lock(mutex_);
      if (!facts_) facts_ = group_->facts();
      start = start_;
    }
    changed_.notify_all();
    if (!start.empty()) {
      if (!KeepsModel()) return;
      group_->Load(start);
    }
  }
  if (group_->state() == State::kReady && before != State::kReady) {
    if (!KeepsModel()) return;
    HandOver();
  }
  group_->CheckProgress(SteadyNowNs(), options_.step_timeout_seconds);
  if (group_->state() == State::kDead) {
    const absl::Status death = group_->death();
    group_.reset();
    Bury(death);
  }
}

// False, and the group is gone, if it follows another and would not have, or has not, loaded what
// the first one had.
bool Supervisor::KeepsModel() {
  const absl::Status same = ever_ready_ && check_ ? check_() : absl::OkStatus();
  if (same.ok()) return true;
  group_.reset();
  Bury(same);
  return false;
}

void Supervisor::HandOver() {
  if (ever_ready_) {
    restarts_.fetch_add(1, std::memory_order_relaxed);
    Log(Severity::kInfo, "workers restarted");
  }
  ever_ready_ = true;
  if (!group_->report().late_masks) {
    Log(Severity::kWarning,
        "a device cannot read masks in host memory: rows with a structure wait for their masks");
  }
  WakeEvent* wake = nullptr;
  {
    const std::lock_guard lock(mutex_);
    fresh_ = group_->memory();
    taken_ = false;
    report_ = group_->report();
    wake = wake_;
  }
  changed_.notify_all();
  if (wake != nullptr) wake->Notify();
}

// After the death of a group: decides whether another one follows, and when.
void Supervisor::Bury(const absl::Status& death) {
  if (!ever_ready_) return GiveUp(death);
  const std::string why(death.message());
  const int64_t now_ns = SteadyNowNs();
  failures_ns_.push_back(now_ns);
  while (now_ns - failures_ns_.front() > Nanoseconds(options_.failure_window_seconds)) {
    failures_ns_.pop_front();
  }
  const auto failures = static_cast<int32_t>(failures_ns_.size());
  if (failures > options_.max_failures) {
    return GiveUp({death.code(), "the workers failed " + std::to_string(failures) +
                                     " times within " +
                                     std::to_string(std::lround(options_.failure_window_seconds)) +
                                     " s; the last time: " + why});
  }
  const double backoff = std::min(options_.first_backoff_seconds * std::exp2(failures - 1),
                                  options_.longest_backoff_seconds);
  start_at_ns_ = now_ns + Nanoseconds(backoff);
  Log(Severity::kError, "workers died; restarting them",
      {{"reason", why}, {"failures", failures}, {"backoff", backoff}});
  WakeEvent* wake = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (taken_) fault_ = why;
    taken_ = false;
    fresh_ = nullptr;
    wake = wake_;
  }
  changed_.notify_all();
  if (wake != nullptr) wake->Notify();
}

void Supervisor::GiveUp(const absl::Status& why) {
  WakeEvent* wake = nullptr;
  {
    const std::lock_guard lock(mutex_);
    end_ = std::string(why.message());
    if (taken_) fault_ = end_;
    taken_ = false;
    fresh_ = nullptr;
    if (!facts_) facts_ = why;
    if (!report_) report_ = why;
    wake = wake_;
  }
  changed_.notify_all();
  if (wake != nullptr) wake->Notify();
}

// Sleeps until the group has an event, another thread calls, or the progress is due for a check.
void Supervisor::Wait() {
  std::vector<pollfd> fds = {{.fd = nudge_.get(), .events = POLLIN, .revents = 0}};
  double seconds = -1;  // for ever
  if (group_ != nullptr) {
    group_->AddPollFds(fds);
    // The ranks of a group that starts wait for each other; one rank waits for none.
    if (group_->state() == WorkerGroup::State::kReady || describe_.size() > 1) {
      seconds = std::min(kMaxLookSeconds, options_.step_timeout_seconds / kLooksPerTimeout);
    }
  } else {
    const std::lock_guard lock(mutex_);
    const int64_t left_ns = start_at_ns_ - SteadyNowNs();
    if (end_.empty()) seconds = std::max(0.0, static_cast<double>(left_ns) * 1e-9);
  }
  // Rounded up, so that the deadline has passed on return.
  const int milliseconds = seconds < 0 ? -1 : static_cast<int>(std::ceil(seconds * 1e3));
  poll(fds.data(), fds.size(), milliseconds);
}

}  // namespace quire
