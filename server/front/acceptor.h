// Acceptor: our own listening socket and accept loop. gRPC 1.51's loop stops forever after one
// EMFILE; this one refuses the connections that it cannot hold and continues. It hands accepted
// sockets to gRPC.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/call/connection_table.h"
#include "server/call/log_rate_limiter.h"

namespace quire {

class Acceptor {
 public:
  struct Options {
    std::string host;          // an address or "localhost"
    bool any_address = false;  // false: loopback addresses only, as plaintext should
    int port = 0;              // 0: any free port
    std::string uds;           // path of a Unix socket, instead of TCP
    int max_connections = 0;   // further ones are accepted and closed at once
    // Open calls at which a connection is cut, and of all connections on a Unix socket; 0: no
    // limit.
    int max_calls = 0;
    int max_calls_uds = 0;
  };
  // Takes ownership of a connected socket.
  using Deliver = std::function<void(int fd)>;

  // Binds and listens. UNAVAILABLE if the address is in use, INVALID_ARGUMENT if it is not allowed;
  // both messages name it and say what to do. A stale Unix socket is replaced, a live one is not.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Listen(const Options& options);
  ~Acceptor();

  int port() const { return port_; }  // 0 for a Unix socket
  ConnectionTable& connections() { return connections_; }
  // Starts accepting. Both functions run on the accept thread: `deliver` takes a connection;
  // `refused` is called for each connection that was closed for lack of room or descriptors.
  void Start(Deliver deliver, std::function<void()> refused);
  // Stops accepting, closes the socket, removes the Unix socket's path. Idempotent.
  void Stop();

 private:
  Acceptor(int fd, const Options& options);

  void Run();
  // False if no connection waits.
  bool AcceptOne();
  // Out of descriptors: releases the spare one to accept and close a connection, so that its client
  // learns of the refusal at once and the queue moves.
  void RefuseOne();
  // Counts a closed connection and logs the reason.
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
  LogRateLimiter refusals_;
  std::thread thread_;
};

}  // namespace quire
