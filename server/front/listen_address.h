// Binding, with errors that say which flag to change: for the admin port, and to find out that the
// gRPC address is taken before seconds are spent on loading a model.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// A listening TCP socket (close-on-exec) that the caller owns. Port 0: any free one. UNAVAILABLE
// names the address, the reason and `flag` ("--metrics-port"), which would move it.
absl::StatusOr<int> ListenTcp(const std::string& host, int port, const std::string& flag);
// The port a socket is bound to.
int BoundPort(int socket);

// Whether a server could listen there now: UNAVAILABLE when somebody else already does.
absl::Status CheckTcpFree(const std::string& host, int port, const std::string& flag);
// A socket file that nobody answers on is stale and no obstacle.
absl::Status CheckUnixSocketFree(const std::string& path);

// Whether `host` can only be reached from this machine: localhost, 127.0.0.0/8, ::1.
bool IsLoopback(const std::string& host);

}  // namespace quire
