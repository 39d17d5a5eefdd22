// Acceptor: the server's own listening socket and accept loop. gRPC 1.51's loop stops for good
// after one EMFILE; this one refuses what it cannot hold and goes on. Accepted sockets are handed
// to gRPC.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/call/connection_table.h"
#include "server/call/log_pace.h"

namespace quire {

class Acceptor {
 public:
  struct Options {
    std::string host;         // an address or "localhost"; loopback only: there is no TLS here
    int port = 0;             // 0: any free port
    std::string uds;          // path of a Unix socket, instead of TCP
    int max_connections = 0;  // beyond it a connection is accepted and closed at once
    // Open calls of one connection before it is cut off, and of all on a Unix socket; 0: no limit.
    int max_calls = 0;
    int max_calls_uds = 0;
  };
  // Takes over a connected socket.
  using Deliver = std::function<void(int fd)>;

  // Binds and listens. UNAVAILABLE when the address is taken, INVALID_ARGUMENT when it cannot be
  // one; both name it and say what to do. A stale Unix socket is replaced, a live one is not.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const Options& options);
  ~Acceptor();

  int port() const { return port_; }  // 0 for a Unix socket
  ConnectionTable& connections() { return connections_; }
  // Starts accepting. Both run on the accept thread: `deliver` takes a connection, `refused` hears
  // of one that was closed for lack of room or descriptors.
  void Start(Deliver deliver, std::function<void()> refused);
  // Stops accepting, closes the socket, removes the Unix socket's path. Idempotent.
  void Stop();

 private:
  Acceptor(int fd, const Options& options);

  void Run();
  // False: nothing more to accept now.
  bool AcceptOne();
  // Out of descriptors: gives up the spare one to accept a connection and close it, so that its
  // client hears of it at once and the queue moves.
  void RefuseOne();
  // Counts a connection that was closed, and says why in the log.
  void NoteRefusal(const char* why);
  void WaitForStop(int milliseconds);
  bool Stopping();

  const Options options_;
  ConnectionTable connections_;
  int fd_;
  int stop_fd_ = -1;
  int spare_fd_ = -1;
  int port_ = 0;
  ino_t uds_inode_ = 0;
  Deliver deliver_;
  std::function<void()> refused_;
  LogPace refusals_;
  std::thread thread_;
};

}  // namespace quire
