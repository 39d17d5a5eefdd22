// Server reflection (grpc.reflection.v1 and v1alpha): lists the services and describes their
// messages. The library's own reflection uses the synchronous API, which takes a thread per stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

// `services` are full names whose descriptors are linked in. `host` outlives the service.
std::unique_ptr<RawService> MakeReflectionService(StreamHost* host,
                                                  std::vector<std::string> services);

}  // namespace quire
