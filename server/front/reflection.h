// Server reflection (grpc.reflection.v1 and v1alpha): lists the services and describes their
// messages. The library's own reflection uses the synchronous API, which takes a thread per stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/call/raw_service.h"

namespace quire {

class ConnectionTable;

// `services` are full names whose descriptors are linked in. `connections` outlive the service.
std::unique_ptr<RawService> MakeReflectionService(ConnectionTable* connections,
                                                  int64_t max_reply_bytes,
                                                  std::vector<std::string> services);

}  // namespace quire
