// Connection: a TCP connection that carries frames, and the listening and connecting that lead to
// one. Silence of the other host ends a connection after some 15 seconds; silence of its process
// does not.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/remote/frame.h"
#include "engine/worker/shm/shared_memory.h"

namespace quire {

class Connection {
 public:
  // Takes a connected, blocking socket.
  explicit Connection(Descriptor socket);

  int fd() const { return socket_.get(); }
  // Numeric, without the port.
  const std::string& local_host() const { return local_host_; }
  // Numeric, with the port, for logs.
  const std::string& peer() const { return peer_; }

  // Any thread; blocks while the other side does not read. UNAVAILABLE when it is gone.
  absl::Status Send(FrameKind kind, std::string_view bytes);
  // One thread receives. Reads bytes that have arrived; blocks if there are none, for at most
  // the time of SetPatience. UNAVAILABLE at the end of the connection, DEADLINE_EXCEEDED after that
  // time.
  absl::Status Receive();
  // As FrameReader's.
  absl::StatusOr<std::optional<Frame>> Next() { return frames_.Next(); }
  // Receives until there is a frame.
  absl::StatusOr<Frame> Await();
  void set_max_bytes(size_t bytes) { frames_.set_max_bytes(bytes); }
  // Of Receive; 0: for ever, the default.
  void SetPatience(double seconds);
  // True while the other side has neither sent anything nor closed.
  bool Silent() const;
  // Gives up the socket, for another process.
  Descriptor TakeSocket() { return std::move(socket_); }

 private:
  Descriptor socket_;
  std::string local_host_;
  std::string peer_;
  FrameReader frames_{Frame::kMaxGreetingBytes};
  std::mutex sending_;
};

// A listening, non-blocking socket at "HOST:PORT" ("[::1]:50052", ":50052" for every address).
// INVALID_ARGUMENT for a malformed or unknown address, FAILED_PRECONDITION when it cannot be had;
// both name `address`. Unless `anywhere`, INVALID_ARGUMENT also for an address that other hosts can
// reach.
absl::StatusOr<Descriptor> ListenForNodes(const std::string& address, bool anywhere);
// Errors as above, but UNAVAILABLE when no leader answers there and for a name that is not known:
// it may be known later.
absl::StatusOr<std::unique_ptr<Connection>> ConnectToLeader(const std::string& address,
                                                            bool anywhere);

}  // namespace quire
