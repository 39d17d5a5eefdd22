// WorkerProcess: the parent's handle of one rank's process. The process inherits a socket, the
// memory of its group, the scheduler's bell and its host arena, if any, and nothing else. It ends
// with its parent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/worker/shm/shared_memory.h"

namespace quire {

// The numbers of the descriptors that a worker inherits.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerMemory = 4;
inline constexpr int kWorkerBell = 5;
inline constexpr int kWorkerArena = 6;
inline constexpr int kWorkerRelay = 6;  // of a relay, which has no arena

class WorkerProcess {
 public:
  struct Options {
    std::string program;  // path of quire-worker
    int32_t rank = 0;
    int memory_fd = -1;
    int bell_fd = -1;
    int arena_fd = -1;  // -1: none
    // Not -1: the process is the relay of a rank of another host, and finds its connection here.
    int relay_fd = -1;
  };

  // NOT_FOUND when there is no such program. The process ends when the calling thread does.
  static absl::StatusOr<WorkerProcess> Start(const Options& options);
  WorkerProcess(WorkerProcess&&) = default;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  // Kills it if it still runs.
  ~WorkerProcess();

  pid_t pid() const { return pid_; }
  // Readable when it has sent a message or has ended.
  int socket() const { return socket_.get(); }
  // Its stdout and stderr; non-blocking.
  int output() const { return output_.get(); }
  // Readable once it has ended.
  int pidfd() const { return pidfd_.get(); }

  // Sends a signal; nothing happens if it has ended.
  void Signal(int number);
  // How it ended: "was killed by signal 9 (Killed)", "exited with code 1"; empty while it runs.
  std::string Ending();
  // Whether a signal (SIGSTOP, SIGTSTP) has stopped it; not by a debugger.
  bool Stopped() const;
  // Waits at most `seconds` for its end. True if it has ended.
  bool AwaitEnd(double seconds);

 private:
  WorkerProcess() = default;

  pid_t pid_ = -1;
  Descriptor socket_;
  Descriptor output_;
  Descriptor pidfd_;
  std::string ending_;
};

}  // namespace quire
