// Server reflection (grpc.reflection.v1 and v1alpha): which services are here and what their
// messages look like. The library's own runs on the synchronous API and would hold a thread per
// stream.
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
