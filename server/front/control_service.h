// quire.v1.Control: what the server is, how loaded it is, and how to stop things.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

// What of the front end itself Control needs.
struct ControlHooks {
  std::function<void(bool exit_when_idle)> drain;
  int64_t started_ns = 0;
  std::string instance_id;
};

// `host` outlives the service.
std::unique_ptr<RawService> MakeControlService(StreamHost* host, ControlHooks hooks);

}  // namespace quire
