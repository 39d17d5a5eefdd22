// The standard health service (grpc.health.v1) over raw calls. The library's own service does not
// count resets (ConnectionTable), so a flood of them could take memory without bound.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "server/call/call_resources.h"
#include "server/call/raw_service.h"

namespace quire {

class HealthWatch;

// The health of the services, and the Watch calls to notify of changes. Any thread.
class HealthBoard {
 public:
  // All `services` ("" is the server) share one status: NOT_SERVING until Set.
  explicit HealthBoard(std::vector<std::string> services);

  // Open watches, which need no key; more are refused.
  static constexpr size_t kMaxWatches = 16'384;

  void Set(bool serving);

 private:
  friend class HealthWatch;
  friend std::unique_ptr<RawService> MakeHealthService(const CallResources* resources,
                                                       HealthBoard* board);

  bool Knows(const std::string& service) const { return services_.count(service) != 0; }
  bool Serving();

  const std::set<std::string> services_;
  // Also guards the state of the watches. It outlives them, so a call may end while it is held.
  std::mutex mutex_;
  bool serving_ = false;            // under mutex_
  std::set<HealthWatch*> watches_;  // under mutex_
};

// `resources` and `board` outlive the service.
std::unique_ptr<RawService> MakeHealthService(const CallResources* resources, HealthBoard* board);

}  // namespace quire
