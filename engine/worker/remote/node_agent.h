// NodeAgent: a follower: for each rank of this host it connects to the leader, runs the rank's
// worker when the leader asks, and connects again when that has ended. It outlives any number of
// groups and leaders.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/remote/connection.h"
#include "engine/worker/remote/greeting.h"
#include "engine/worker/shm/shared_memory.h"

namespace quire {

class NodeAgent {
 public:
  struct Options {
    std::string leader_address;  // HOST:PORT
    GroupKey key;
    int32_t nodes = 2;
    int32_t node = 1;
    std::string program;  // path of quire-worker
  };

  // Tries the address once, for at most some seconds, and leaves the rest to its threads.
  // INVALID_ARGUMENT for a malformed address and for one that needs a key.
  static absl::StatusOr<std::unique_ptr<NodeAgent>> Start(const Options& options);
  // Kills the workers.
  ~NodeAgent();

 private:
  struct Joined {
    std::unique_ptr<Connection> link;
    RankGrant grant;
  };

  explicit NodeAgent(const Options& options);
  void RunRank(int32_t local);
  absl::StatusOr<Joined> Join(int32_t local);
  // The number of ranks here, which only the leader knows.
  void SetRanks(int32_t ranks);
  bool AwaitTurn(int32_t local);
  // Waits, but not beyond the end.
  void Pause(double seconds);

  const Options options_;
  Descriptor stop_;  // an eventfd, readable from the end on

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int32_t ranks_ = 1;
  std::vector<std::thread> threads_;  // by local rank
};

}  // namespace quire
