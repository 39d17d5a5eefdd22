// DrainState: whether the server refuses new requests and sessions. GrpcFront switches it, calls
// read it. Any thread.
#pragma once

#include <atomic>

#include "absl/status/status.h"
#include "server/call/status_codec.h"

namespace quire {

class DrainState {
 public:
  bool draining() const { return draining_.load(); }
  // Returns the state before.
  bool Set(bool draining) { return draining_.exchange(draining); }

  // UNAVAILABLE with the reason DRAINING while the server drains.
  absl::Status CheckAccepts() const {
    if (!draining()) return absl::OkStatus();
    return Refusal(absl::StatusCode::kUnavailable, "DRAINING",
                   "the server is draining; retry elsewhere", 1);
  }

 private:
  std::atomic<bool> draining_{false};
};

}  // namespace quire
