// WorkerGroup: the processes of all ranks and the memory they share, from start to end. When one
// rank dies, the group is dead and its other ranks are killed.
//
// Used by one thread, which polls the descriptors that the group names and then calls Handle.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/process/group_progress.h"
#include "engine/worker/process/handshake.h"
#include "engine/worker/process/output_lines.h"
#include "engine/worker/process/worker_process.h"

namespace quire {

class WorkerGroup {
 public:
  enum class State : uint8_t { kDescribing, kDescribed, kLoading, kReady, kDead };

  // Starts a process per order (to describe) and asks each for its device. The calling thread must
  // outlive the group's processes.
  static absl::StatusOr<std::unique_ptr<WorkerGroup>> Start(const std::string& program,
                                                            const std::vector<WorkerOrder>& orders,
                                                            int bell_fd);
  // Kills the processes that still run.
  ~WorkerGroup();

  State state() const { return state_; }
  // Once kDead: why.
  const absl::Status& death() const { return death_; }
  // Once kDescribed: of the rank with the least free memory.
  const DeviceFacts& facts() const { return facts_; }
  // Once kReady: of rank 0, with the GPUs of all ranks, and late masks only if all can have them.
  const WorkerReport& report() const { return ranks_.front()->report; }
  // From Load on.
  std::shared_ptr<StepMemory> memory() const { return memory_; }

  // Adds the descriptors to poll before the next Handle.
  void AddPollFds(std::vector<pollfd>& fds) const;
  // Reads the messages that have arrived, forwards the workers' output to the log, and updates the
  // state.
  void Handle();
  // From kDescribed to kLoading: one order (to start) per rank.
  void Load(const std::vector<WorkerOrder>& orders);
  // Kills the group, and names the rank that holds the others up, when a ready rank has work and
  // has finished no step, or no copy, for that long; when a rank that starts is past the deadline
  // of StartProgress; and when a rank of several has been stopped by a signal for that long while
  // the group starts. Measures from the first call that saw the rank stand still: call it often.
  void CheckProgress(int64_t now_ns, double timeout_seconds);
  // Kills the group, for this reason.
  void Condemn(const absl::Status& why);
  // Waits for all ranks to end after their last plan, then kills those that still run.
  void AwaitEnd(double seconds);

 private:
  struct Rank {
    Rank(WorkerProcess process_in, int32_t rank)
        : process(std::move(process_in)), output(rank, process.pid()) {}

    WorkerProcess process;
    OutputLines output;
    bool output_open = true;
    bool socket_open = true;
    MessageReader inbox;
    uint64_t messages = 0;  // taken
    bool described = false;
    DeviceFacts facts;
    std::optional<std::string> share;  // of this round
    bool ready = false;
    WorkerReport report;
    int64_t stopped_since_ns = 0;  // 0: it runs
  };

  explicit WorkerGroup(int32_t ranks);
  absl::Status Read(Rank& rank);
  absl::Status Take(Rank& rank, const WorkerMessage& message);
  absl::Status SaidBy(const Rank& rank, const absl::Status& status) const;
  absl::Status EndOf(Rank& rank);
  std::string NameOf(const Rank& rank) const;
  void MoveOn();
  absl::Status AnswerShares();
  std::string NamesOf(const std::vector<int32_t>& ranks) const;
  static double StoppedFor(Rank& rank, int64_t now_ns);
  void CheckStart(int64_t now_ns, double timeout_seconds);
  std::string Describe(const StartProgress::Lag& lag) const;
  std::string Describe(const GroupProgress::Stall& stall);

  State state_ = State::kDescribing;
  absl::Status death_;
  SharedMemory unsized_;  // until Load
  std::shared_ptr<StepMemory> memory_;
  DeviceFacts facts_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  StartProgress start_;
  std::optional<GroupProgress> progress_;  // from Load on
};

}  // namespace quire
