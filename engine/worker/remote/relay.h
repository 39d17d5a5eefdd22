// RunRelay: the program quire-worker in the place of a rank of another host. It inherits what a
// rank inherits, and passes everything between that and one connection: so the server sees a rank,
// and the other host's process sees a server.
#pragma once

#include <cstdint>

namespace quire {

// Serves until the rank has ended or is lost, and returns the exit code; the server gets the
// reason, with the node's name, as a WorkerFailure. The caller has bound the process's life to the
// server's.
int RunRelay(int32_t rank);

}  // namespace quire
