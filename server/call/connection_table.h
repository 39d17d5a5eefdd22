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
#include <unordered_map>
#include <vector>

#include "server/call/log_rate_limiter.h"

namespace quire {

class ConnectionTable {
 public:
  struct Limits {
    int connections = 0;
    // Open calls that no honest connection can pass; 0: no limit.
    int calls = 0;
    // The same for all connections without a slot, together.
    int calls_without_slot = 0;
  };
  explicit ConnectionTable(const Limits& limits);

  // Registers an accepted socket; false when that is one too many. The accept thread.
  bool Add(int fd);

  // Slots are the numbers by which calls name their connection, in [0, kSlots).
  static constexpr int kSlots = 65536;
  // From gRPC's name of a peer ("ipv4:127.0.0.1:4711"). 0 if it is no TCP connection that Add has
  // seen: all peers of a Unix socket count as one. Any thread.
  int SlotOf(const std::string& peer) const;
  // Any thread.
  void CallOpened(int slot);
  void CallClosed(int slot);
  // Of all connections, the calls that were reset too. Any thread.
  int open_calls() const;

  // Shut connections down at once, without waiting for writes in flight; their calls end as
  // cancelled. Any thread. Cut ignores slot 0.
  void Cut(int slot, const char* reason);
  void CutAll(const char* reason);

  // While corked, the kernel gathers a connection's small frames into full segments; uncorking
  // sends them. Any thread; two threads that cork at once only gather less.
  void SetCork(int slot, bool corked);

 private:
  bool HasRoom();  // under mutex_
  void NotePeer(int fd);

  const Limits limits_;
  std::mutex mutex_;
  // By descriptor, under mutex_: the inode of the socket it was, 0 for none. A connection is alive
  // while fstat shows the same inode.
  std::vector<ino_t> inode_by_fd_;
  int tracked_ = 0;  // upper bound of the live connections
  // Descriptors by the peer's address and port, and the other way round. An entry may
  // outlive its connection until its descriptor is given to another one. They have a lock of their
  // own: calls look slots up, and must not wait while the accept thread looks for dead connections.
  mutable std::mutex peers_mutex_;
  std::unordered_map<std::string, int> fd_by_peer_;
  std::vector<std::string> peer_by_fd_;
  std::array<std::atomic<int32_t>, kSlots> open_calls_{};  // by slot, which is descriptor + 1
  LogRateLimiter cuts_;
};

// A call that counts as open for as long as this lives: a member of its reactor.
class OpenCall {
 public:
  OpenCall(ConnectionTable* table, const std::string& peer)
      : table_(table), slot_(table->SlotOf(peer)) {
    table_->CallOpened(slot_);
  }
  ~OpenCall() { table_->CallClosed(slot_); }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

 private:
  ConnectionTable* const table_;
  const int slot_;
};

}  // namespace quire
