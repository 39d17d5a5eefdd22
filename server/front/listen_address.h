// Binds addresses, with errors that name the flag to change: for the admin port, and to check the
// gRPC address before a model is loaded.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// A listening TCP socket (close-on-exec) that the caller owns. Port 0: any free port.
// UNAVAILABLE names the address, the reason and `flag`, the setting to change ("--metrics-port").
absl::StatusOr<int> ListenTcp(const std::string& host, int port, const std::string& flag);
// The port that a socket on `host` is bound to; UNAVAILABLE with the reason if the system does not
// tell it.
absl::StatusOr<int> BoundPort(int socket, const std::string& host);

// OK if a server could listen there now; UNAVAILABLE if another process does.
absl::Status CheckTcpFree(const std::string& host, int port, const std::string& flag);
// Also OK for a stale socket file, on which no process answers.
absl::Status CheckUnixSocketFree(const std::string& path);

// True if `host` is reachable only from this machine: localhost, 127.0.0.0/8, ::1.
bool IsLoopback(const std::string& host);
// Why plaintext gRPC on `host`, which is not loopback, is refused, and what to do instead.
std::string PlaintextRefusal(const std::string& host);

}  // namespace quire
