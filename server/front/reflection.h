// Server reflection (grpc.reflection.v1 and v1alpha): lists the services and describes their
// messages. The library's own reflection uses the synchronous API, which takes a thread per stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/call/call_resources.h"
#include "server/call/raw_service.h"

namespace quire {

// `services` are full names whose descriptors are linked in. `resources` outlive the service.
std::unique_ptr<RawService> MakeReflectionService(const CallResources* resources,
                                                  std::vector<std::string> services);

}  // namespace quire
