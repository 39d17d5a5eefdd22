// HostedRank: a rank on a follower. It starts the worker process, shares memory with it as a server
// does, and passes all messages, plans, results and copies between that memory and the connection
// to the rank's relay. It decides one thing: a load of a page without a block is refused.
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

  // Starts the worker when the leader orders it, and passes frames. Returns OK when the worker has
  // ended after its last plan, CANCELLED when `stop_fd` is readable, INTERNAL for malformed frames,
  // UNAVAILABLE when the worker died or the connection is lost. The leader gets the reason too. The
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
  // Passes the worker's messages and output. Its end is an error, unless it sets `ended_well_`.
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
