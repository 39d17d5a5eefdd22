// WireResources: the objects that the services of other projects' protocols share. Built by
// GrpcFront.
#pragma once

#include <cstdint>
#include <string>

#include "server/generate/generate_resources.h"

namespace quire {

struct SessionResources;

// `generate` and `sessions` outlive the calls.
struct WireResources {
  const GenerateResources& generate;
  SessionResources& sessions;  // its thread runs calls that take time and generate nothing
  int64_t started_ns = 0;      // when the server began; steady clock
  std::string instance_id;     // as in quire.v1.Control/GetServerInfo
};

}  // namespace quire
