// ConnectionTable: the connections that were handed to gRPC, which closes them without a report.
// Holds the cap on connections, and cuts off a connection that resets streams faster than they can
// be cleaned up (CVE-2023-44487; gRPC 1.51 has no defence against it).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "server/call/log_rate_limiter.h"

namespace quire {

class ConnectionTable {
 public:
  struct Limits {
    int connections = 0;
    // Open calls that no honest connection can pass; 0: no limit.
    int calls = 0;
    // The same for all connections that have no port, together.
    int calls_without_port = 0;
  };
  explicit ConnectionTable(const Limits& limits);

  // Registers an accepted socket; false when that is one too many. The accept thread.
  bool Add(int fd);

  // The key of CallOpened and CallClosed: the TCP port in gRPC's name of a peer
  // ("ipv4:127.0.0.1:4711"), 0 if it has none: all peers of a Unix socket count as one.
  static int PortOf(const std::string& peer);
  // Any thread.
  void CallOpened(int port);
  void CallClosed(int port);

  // Shut connections down at once, without waiting for writes in flight; their calls end as
  // cancelled. Any thread. Cut takes the peer's port and ignores an unknown one.
  void Cut(int port, const char* reason);
  void CutAll(const char* reason);

  // While corked, the kernel gathers a connection's small frames into full segments; uncorking
  // sends them. Any thread; two threads that cork at once only gather less.
  void SetCork(int port, bool corked);

 private:
  bool HasRoom();  // under mutex_

  const Limits limits_;
  std::mutex mutex_;
  // By descriptor, under mutex_: the inode of the socket it was, 0 for none. A connection is alive
  // while fstat shows the same inode.
  std::vector<ino_t> inode_by_fd_;
  int tracked_ = 0;  // upper bound of the live connections
  // By the peer's port. Peers are on this machine (there is no listening beyond it), so a port
  // names one of them at a time.
  std::array<std::atomic<int>, 65536> fd_by_port_{};  // plus one; 0: none
  std::array<std::atomic<int32_t>, 65536> open_calls_{};
  LogRateLimiter cuts_;
};

// A call that counts as open for as long as this lives: a member of its reactor.
class OpenCall {
 public:
  OpenCall(ConnectionTable* table, const std::string& peer)
      : table_(table), port_(ConnectionTable::PortOf(peer)) {
    table_->CallOpened(port_);
  }
  ~OpenCall() { table_->CallClosed(port_); }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

 private:
  ConnectionTable* const table_;
  const int port_;
};

}  // namespace quire
