// RunRelay: the program quire-worker in the place of a rank of another host. It inherits the
// descriptors of a rank and passes all messages, plans, results and copies between them and one
// connection. The server sees a rank; the HostedRank at the other end sees a server.
#pragma once

#include <cstdint>

namespace quire {

// Serves until the rank has ended or is lost, and returns the exit code; the server gets the
// reason, with the node's name, as a WorkerFailure. The caller has bound the process's life to the
// server's.
int RunRelay(int32_t rank);

}  // namespace quire
