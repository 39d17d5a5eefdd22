// ServerWorld: a whole server with its clients in one program of virtual time, all of it decided by
// a seed. The engine with its thread, the output shards, the stall watch and the streams are the
// product's own code; workers and copies are shadows (virtual_workers.h), and clients are
// virtual_client.h and conversations.h. Arrivals, cancels, departures, slow and dead readers,
// deadlines, aborts, turns, forks, exports, flushes, deaths of workers, stalls, failed and damaged
// copies and jumps of the clocks interleave as the seed says.
//
// After each turn of the engine's loop the scheduler recomputes its state and compares
// (Scheduler::CheckInvariants), and the engine computes nothing for a call that is over. In the end
// every call has ended once and as it should, no stream is left, no row, block or page is in use,
// and the engine has counted what the workers did.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace quire {

struct WorldReport {
  int64_t steps = 0;     // of the workers
  int64_t actions = 0;   // of the world's agenda
  int64_t turns = 0;     // of the engine's loop, each followed by the check of all invariants
  int64_t switches = 0;  // between threads
  int64_t virtual_ns = 0;
  uint64_t digest = 0;  // of all that happened: equal for equal runs
  std::map<std::string, int64_t> counts;
};

// Runs the program of one seed. Breaches are failures of the test. `trace`: prints what happens.
WorldReport RunServerWorld(uint64_t seed, bool trace);

}  // namespace quire
