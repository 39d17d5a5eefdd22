// The standard health service (grpc.health.v1) over raw calls: the library's own counts no resets
// (ConnectionTable), and nothing bounds what a flood of them holds.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

class HealthWatch;

// Who is healthy, and who wants to know when that changes. Any thread.
class HealthBoard {
 public:
  // All of `services` ("" is the server) have one truth: not serving, until told.
  explicit HealthBoard(std::vector<std::string> services);

  void Set(bool serving);

 private:
  friend class HealthWatch;
  friend std::unique_ptr<RawService> MakeHealthService(StreamHost* host, HealthBoard* board);

  bool Knows(const std::string& service) const { return services_.count(service) != 0; }
  bool Serving();

  const std::set<std::string> services_;
  // Guards the watches' state too: it outlives them, so that a call may end while it is held.
  std::mutex mutex_;
  bool serving_ = false;            // under mutex_
  std::set<HealthWatch*> watches_;  // under mutex_
};

// `host` and `board` outlive the service.
std::unique_ptr<RawService> MakeHealthService(StreamHost* host, HealthBoard* board);

}  // namespace quire
