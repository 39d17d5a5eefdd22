// DoorKeeper: the server's door as its settings want it, with the watch over its key file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/identity/door.h"
#include "server/identity/key_door.h"
#include "server/identity/key_watch.h"
#include "server/metrics/auth_metrics.h"

namespace quire {

class DoorKeeper {
 public:
  struct Options {
    std::string api_keys;               // file; empty: no caller needs a key
    bool everybody_administers = true;  // without keys
    std::vector<std::string> served;    // names of the model
  };

  // Reads the key file. INVALID_ARGUMENT or NOT_FOUND names it, the entry and the fault. `metrics`
  // outlive the keeper.
  static absl::StatusOr<std::unique_ptr<DoorKeeper>> Open(const Options& options,
                                                          AuthMetrics* metrics);

  const Door& door() const { return *door_; }
  // The name of each tenant, as the key file has it; empty if it has none of this number. Any
  // thread.
  std::vector<std::string> NamesOf(const std::vector<TenantStats>& tenants) const;

  // Gives the limits of the tenants to `apply`, now and after each change, from the watch's thread.
  // `apply` and what it refers to live until StopWatch. Call it once.
  void Watch(std::function<void(const TenantTable&)> apply);
  // `apply` is not called any more.
  void StopWatch() { watch_.reset(); }

 private:
  DoorKeeper(std::string api_keys, std::unique_ptr<Door> door, KeyDoor* keys, AuthMetrics* metrics);

  const std::string api_keys_;
  AuthMetrics& metrics_;
  const std::unique_ptr<Door> door_;
  KeyDoor* const keys_;  // `door_`, if it has keys
  std::unique_ptr<KeyWatch> watch_;
};

}  // namespace quire
