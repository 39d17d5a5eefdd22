// WorkerGroup: the processes of all ranks and the memory they share, from start to end: one
// generation. When one rank dies the group is dead, and the others are killed.
//
// Used by one thread, which waits for the descriptors that the group names and lets it handle what
// came.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/process/output_lines.h"
#include "engine/worker/process/worker_process.h"

namespace quire {

class WorkerGroup {
 public:
  enum class State : uint8_t { kDescribing, kDescribed, kLoading, kReady, kDead };

  // Starts a process per order and asks each for its device. The orders are of describing. The
  // calling thread must outlive the group's processes.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Start(const std::string& program,
                                                            const std::vector<WorkerOrder>& orders,
                                                            int bell_fd);
  // Kills what still runs.
  ~WorkerGroup();

  State state() const { return state_; }
  // Once kDead: why.
  const absl::Status& death() const { return death_; }
  // Once kDescribed: of the rank with the least free memory.
  const DeviceFacts& facts() const { return facts_; }
  // Once kReady: of rank 0.
  const WorkerReport& report() const { return ranks_.front()->report; }
  // From Load on.
  std::shared_ptr<StepMemory> memory() const { return memory_; }

  // What to wait for until Handle is worth calling.
  void AddPollFds(std::vector<pollfd>& fds) const;
  // Reads whatever came, forwards the workers' output to the log, and moves on.
  void Handle();
  // From kDescribed to kLoading: one order per rank, of starting.
  void Load(const std::vector<WorkerOrder>& orders);
  // Of a group that is ready: kills it when a rank has work and finished no step, or no copy, for
  // so long. Looked at often, it knows since when.
  void CheckProgress(int64_t now_ns, double timeout_seconds);
  // Kills the group, for this reason.
  void Condemn(const absl::Status& why);
  // Waits for all ranks to end after their last plan, then kills what still runs.
  void AwaitEnd(double seconds);

 private:
  // Work of one kind: how much is done, and since when no more is though there is some.
  struct Progress {
    uint64_t finished = 0;
    int64_t waiting_since_ns = 0;
  };
  struct Rank {
    Rank(WorkerProcess process_in, int32_t rank)
        : process(std::move(process_in)), output(rank, process.pid()) {}

    WorkerProcess process;
    OutputLines output;
    bool output_open = true;
    bool socket_open = true;
    MessageReader inbox;
    bool described = false;
    DeviceFacts facts;
    bool ready = false;
    WorkerReport report;
    // The state of CheckProgress.
    Progress steps, loads, stores;
  };

  WorkerGroup() = default;
  absl::Status Read(Rank& rank);
  absl::Status Take(Rank& rank, const WorkerWord& word);
  absl::Status SaidBy(const Rank& rank, const absl::Status& status) const;
  absl::Status EndOf(Rank& rank);
  std::string NameOf(const Rank& rank) const;
  void MoveOn();
  void CheckRank(Rank& rank, int32_t index, int64_t now_ns, double timeout_seconds);

  State state_ = State::kDescribing;
  absl::Status death_;
  SharedMemory unsized_;  // until Load
  std::shared_ptr<StepMemory> memory_;
  DeviceFacts facts_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace quire
