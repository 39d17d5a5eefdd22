// Supervisor: keeps a worker group running: starts its processes, watches that they live and make
// progress, and replaces them when they do not. Has a thread of its own, the parent of all workers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/process/restarting_transport.h"
#include "engine/worker/process/worker_group.h"

namespace quire {

struct SupervisorOptions {
  std::string program;  // path of quire-worker
  // A group that has work and finishes no step is killed, and one of several ranks that starts when
  // one of them is later than the others by this and by the time that they took.
  double step_timeout_seconds = 30;
  // A group that was ready once is restarted when it dies, unless groups died more often than this
  // within the window. At the deaths of the default, a request is taken for their cause.
  int32_t max_failures = 3;
  double failure_window_seconds = 300;
  double first_backoff_seconds = 0.1;  // before a restart; doubled for each failure in the window
  double longest_backoff_seconds = 1;  // where many failures are allowed
  double end_seconds = 5;              // time for workers to end after their last plan
  // A group is started only while this is true; null: at any time. Called by the thread.
  std::function<bool()> may_start;
};

class Supervisor final : public WorkerGroups {
 public:
  // Starts a process for each order (to describe) and returns at once.
  Supervisor(const SupervisorOptions& options, std::vector<WorkerOrder> describe);
  // Ends the group: within end_seconds if its transport was destroyed, else at once.
  ~Supervisor() override;

  // The device of the rank with the least free memory. Blocks until all have described theirs;
  // after an error the supervisor starts no further group.
  absl::StatusOr<DeviceFacts> AwaitFacts();
  // Call it next: gives each rank its order (to start), now and after every restart. A group that
  // follows another is kept only if `check` is null or OK once it is ready: whether what it loaded
  // is what the first one had. `check` is called by the thread, before such a group loads and when
  // it is ready.
  void Load(std::vector<WorkerOrder> start, std::function<absl::Status()> check = nullptr);
  // Blocks until the first group is ready, which Take then returns. After an error the supervisor
  // starts no further group.
  absl::StatusOr<WorkerReport> AwaitReady();

  void SetWake(WakeEvent* wake) override;
  std::unique_ptr<Transport> Take() override;
  std::string Fault() override;
  std::string End() override;
  void Condemn(const std::string& why) override;
  // Groups that replaced a dead one.
  uint64_t restarts() const { return restarts_.load(std::memory_order_relaxed); }

 private:
  void Run();
  bool TakeRequests();
  void StartGroup();
  void FollowGroup();
  bool KeepsModel();
  void HandOver();
  void Bury(const absl::Status& death);
  void GiveUp(const absl::Status& why);
  void Wait();
  void Nudge();

  const SupervisorOptions options_;
  const std::vector<WorkerOrder> describe_;
  std::shared_ptr<std::atomic<uint32_t>> bell_;  // in shared memory
  int bell_fd_ = -1;
  Descriptor nudge_;  // an eventfd that ends Wait
  std::atomic<uint64_t> restarts_{0};

  // The thread's own.
  std::unique_ptr<WorkerGroup> group_;  // null between two groups
  std::deque<int64_t> failures_ns_;     // within the window
  int64_t start_at_ns_ = 0;             // of the next group
  bool ever_ready_ = false;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::optional<absl::StatusOr<DeviceFacts>> facts_;
  std::vector<WorkerOrder> start_;       // empty until Load
  std::function<absl::Status()> check_;  // constant after Load
  std::optional<absl::StatusOr<WorkerReport>> report_;
  std::shared_ptr<StepMemory> fresh_;  // of a ready group that was not taken yet
  bool taken_ = false;                 // the running group
  std::string fault_;                  // of the group taken last
  std::string end_;
  std::string condemned_;
  bool stopping_ = false;
  WakeEvent* wake_ = nullptr;

  std::thread thread_;  // last: it uses the members above
};

}  // namespace quire
