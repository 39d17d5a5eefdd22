// LeaderPort: where a leader takes the connections of its followers. For each remote rank it keeps
// one connection whose other side has proved the group's key, until the relay of that rank asks for
// it. A follower connects again when a connection has ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/worker/remote/connection.h"
#include "engine/worker/remote/greeting.h"
#include "engine/worker/shm/shared_memory.h"

namespace quire {

class LeaderPort {
 public:
  struct Options {
    std::string address;  // HOST:PORT
    GroupKey key;
    int32_t nodes = 2;
    int32_t ranks = 2;  // a multiple of nodes
  };

  // Listens. Errors as ListenForNodes'; without a key, other hosts are refused.
  static absl::StatusOr<std::unique_ptr<LeaderPort>> Start(const Options& options);
  ~LeaderPort();

  // Blocks until Complete. Logs which nodes are missing every few seconds.
  void AwaitNodes();
  // Whether every remote rank has a connection that waits for its relay. A group that is started
  // without one would wait for the missing node beyond its deadlines.
  bool Complete();
  // After AwaitNodes: this host's address as its followers reach it.
  std::string host();
  // Whether a rank belongs to another host.
  bool Remote(int32_t rank) const { return rank >= local_ranks_; }
  // The socket at which the relay of a remote rank asks for its connection; lives as long as this.
  // See AskForConnection.
  const Descriptor& relay_end(int32_t rank) const { return remote_[rank - local_ranks_].relay_end; }

 private:
  // A connection whose greeting is not over.
  struct Guest {
    std::unique_ptr<Connection> connection;
    std::unique_ptr<LeaderGreeting> greeting;
    int64_t until_ns = 0;
  };
  struct RemoteRank {
    Descriptor port_end, relay_end;  // of a pair of sockets
    std::unique_ptr<Connection> connection;
    std::string name;      // of its host, for logs
    bool wanted = false;   // a relay waits for a connection
    bool arrived = false;  // a connection has been here
  };

  explicit LeaderPort(const Options& options);
  void Run();
  void Accept();
  // False when the guest is to be dropped.
  bool Greet(Guest& guest);
  bool AllSeated() const;
  absl::Status CheckVacant(const Guest& guest);
  void Seat(Guest& guest);
  void DropLost();
  void TakeWish(RemoteRank& rank);
  void GiveWanted();
  void LogMissing();
  int Wait();

  const LeaderGreeting::Group group_;
  const int32_t local_ranks_;
  Descriptor listener_;
  Descriptor stop_;  // an eventfd

  // The thread's own.
  std::vector<Guest> guests_;
  int64_t log_at_ns_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RemoteRank> remote_;  // by rank, from the first of node 1
  std::string host_;
  bool awaited_ = false;  // Complete was false when it was asked last

  std::thread thread_;  // last: it uses the members above
};

// A connection that a LeaderPort has given to a relay.
struct GivenConnection {
  std::unique_ptr<Connection> connection;
  std::string name;  // "node 1 (10.0.0.2:40112)"
};
// The relay's side: waits for the connection of its rank, for as long as it takes. UNAVAILABLE when
// the port is gone.
absl::StatusOr<GivenConnection> AskForConnection(int relay_fd);

}  // namespace quire
