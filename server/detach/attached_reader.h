// AttachedReader: one call that reads a kept answer, as its answer sees it: how far it has read,
// and its write in flight.
#pragma once

#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "server/call/connection_table.h"
#include "server/generate/stream_outlet.h"

namespace quire {

// Shared by the answer and the call, which end in any order.
class AttachedReader {
 public:
  // `outlet` lives until Closed. `slot`: of the peer's connection (ConnectionTable::SlotOf).
  AttachedReader(StreamOutlet* outlet, int slot) : slot_(slot), outlet_(outlet) {}

  // The outlet, for the thread that decided to write or to end: until the end was decided, the call
  // does not close.
  StreamOutlet& outlet() { return *outlet_; }

  // The call did not end in `timeout_ns` after its end was decided: its peer has stopped reading.
  // Tears the call down, and the second time its connection. Any thread.
  void TearDown(ConnectionTable& connections);
  // The outlet is about to be destroyed.
  void Closed();

  // --- All below: under the answer's mutex.
  uint32_t position = 0;       // tokens of the output that were written
  bool accepted_sent = false;  // by this call
  bool prompt_sent = false;    // the scores of the prompt, by this call
  bool writing = false;        // from the decision to write until the write is done
  bool starting = false;       // a thread is inside a write call of the outlet
  bool ended = false;          // the end of the call was decided
  int64_t busy_since_ns = 0;   // when the write in flight, or the end, was decided
  int64_t torn_ns = 0;         // when the call was torn down; 0: it was not
  absl::Status failure;        // not OK: end with this as soon as possible

 private:
  const int slot_;
  std::mutex mutex_;  // so that TearDown cannot meet a destroyed outlet
  StreamOutlet* outlet_;
  bool reset_ = false;
};

}  // namespace quire
