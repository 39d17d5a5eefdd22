// Server reflection (grpc.reflection.v1 and v1alpha): which services are here and what their
// messages look like. The library's own runs on the synchronous API and would hold a thread per
// stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/raw_service.h"

namespace quire {

// `services` are full names whose descriptors are linked in.
std::unique_ptr<RawService> MakeReflectionService(std::vector<std::string> services);

}  // namespace quire
