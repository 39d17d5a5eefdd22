// WireResources: the objects that the services of other projects' protocols share. Built by
// GrpcFront.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "server/generate/generate_resources.h"

namespace quire {

struct SessionResources;

// The objects outlive the calls.
struct WireResources {
  const GenerateResources& generate;
  SessionResources& sessions;  // its thread runs calls that take time and generate nothing
  // Whether the engine makes progress: what grpc.health.v1 says while the server does not drain.
  const std::atomic<bool>& healthy;
  int64_t started_ns = 0;   // when the server began; steady clock
  std::string instance_id;  // as in quire.v1.Control/GetServerInfo
};

}  // namespace quire
