// quire.v1.Control: facts about the server, its load, and how to end requests and drain it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

// What Control needs of the front. Both functions may be called by any thread.
struct ControlHooks {
  std::function<void(bool exit_when_idle)> drain;
  // Whether the front was draining; FAILED_PRECONDITION once the process is ending.
  std::function<absl::StatusOr<bool>()> undrain;
  int64_t started_ns = 0;
  std::string instance_id;
};

// `host` outlives the service.
std::unique_ptr<RawService> MakeControlService(StreamHost* host, ControlHooks hooks);

}  // namespace quire
