// HostedRank: a rank on a follower: its worker process, the memory that they share, and the
// connection to the rank's relay, between which it passes everything. To the worker it is the
// server; it decides nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "engine/base/wake_event.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/process/step_memory.h"
#include "engine/worker/process/worker_process.h"
#include "engine/worker/remote/connection.h"
#include "engine/worker/remote/greeting.h"
#include "engine/worker/remote/rank_counters.h"
#include "engine/worker/remote/stored_pages.h"

namespace quire {

class HostedRank {
 public:
  struct Options {
    std::string program;  // path of quire-worker
    RankGrant grant;
    int32_t local = 0;  // among the ranks of this host
  };

  // `link` and `pages`, which has memory for this leader, outlive this.
  HostedRank(Connection& link, StoredPages& pages, const Options& options);
  // Kills the worker if it still runs.
  ~HostedRank();

  // Starts the worker when the leader orders it, and passes frames until the worker has ended (OK),
  // the connection is lost, the leader sends nonsense, or `stop_fd` is readable (CANCELLED). The
  // calling thread must outlive the worker.
  absl::Status Run(int stop_fd);

 private:
  // One direction of copies.
  struct Lane {
    struct Job {
      CopyJobMessage message;
      bool refused = false;  // the worker never sees it
    };
    std::deque<Job> jobs;  // without an ack
    uint64_t acked = 0;    // by the worker
  };

  absl::Status Serve(int stop_fd);
  absl::Status TakeFrames();
  absl::Status Take(const Frame& frame);
  absl::Status TakeMessage(const std::string& text);
  absl::Status StartWorker();
  absl::Status AllocateMemory(const WorkerSpec& spec);
  absl::Status TakePlan(std::string_view bytes);
  absl::Status TakeJob(CopyDirection direction, std::string_view bytes);
  bool Valid(const CopyJobMessage& job) const;
  // Passes what the worker has said and printed. Its end is an error, but OK in `ended_well_`.
  absl::Status ReadWorker();

  // On the thread that passes results.
  void PassResults();
  bool PassNew();
  bool PassAcks(CopyDirection direction);
  bool PassCounters();
  void StopPassing();

  Connection& link_;
  StoredPages& pages_;
  const Options options_;

  SharedMemory unsized_;  // until the order to start
  std::shared_ptr<SharedMemory> bell_;
  std::optional<WorkerProcess> process_;
  bool socket_open_ = true;
  bool output_open_ = true;
  bool ended_well_ = false;
  MessageReader inbox_;
  std::optional<WorkerSpec> spec_;  // of the order to start
  std::optional<StepMemory> memory_;

  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> passed_results_{0};
  RankCounters counters_;  // passed last
  std::mutex mutex_;       // guards lanes_ and pages_
  std::array<Lane, 2> lanes_;
  std::thread passing_;  // from the order to start on
};

}  // namespace quire
