// Figures of the scheduler: running and waiting requests, where KV was found, and copies between
// device and host. Plain copies, as old as the call that made them.
#pragma once

#include <array>
#include <cstdint>

#include "engine/values/step_cost.h"

namespace quire {

struct SchedulerLoad {
  int32_t running = 0;         // sequences being computed
  int32_t waiting = 0;         // queued, preempted ones included
  int32_t paused = 0;          // neither, because their readers are slow
  bool held_up = false;        // nothing runs, and what waits has no room beside pinned sessions
  int64_t waiting_tokens = 0;  // prompt tokens of waiting sequences
  int32_t restoring = 0;       // neither, because their KV comes back from the host
  int32_t free_blocks = 0;     // reusable at once: cached blocks included
  int32_t cached_blocks = 0;
  int32_t total_blocks = 0;      // without the null block
  int64_t tokens_in_flight = 0;  // known tokens of running sequences
  int32_t prompt_budget = 0;     // prompt tokens that the last step with prompts could have
  uint64_t late_masks = 0;       // a step ran or was planned without the draw that they are for
  StepCost step_cost;
  double step_cost_error = 0;  // mean of |measured / predicted - 1| of late
};

// Look-ups in the prefix cache and in sessions, where KV was found, and how much is kept.
struct CacheStats {
  int64_t queried_tokens = 0;  // prompt tokens of admitted requests
  int64_t device_tokens = 0;   // prompt tokens whose KV was on the device
  int64_t host_tokens = 0;     // prompt tokens whose KV came back from the host
  int64_t computed_tokens = 0;
  int64_t evicted_blocks = 0;
  int64_t kept_lost = 0;  // evicted blocks of idle sessions that had no other copy
  int32_t cached_blocks = 0;
  int32_t host_pages_used = 0;
  int32_t host_pages_ready = 0;  // allocated and pinned so far
  int32_t host_pages = 0;
  int64_t sessions = 0;
  int64_t session_tokens = 0;
  std::array<int64_t, 8> sessions_by_state{};  // by SessionState
};

struct TieringStats {
  int64_t stored_bytes = 0, loaded_bytes = 0;
  int64_t stored_blocks = 0, loaded_blocks = 0;
  int64_t failed_jobs = 0, late_jobs = 0, corrupt_pages = 0;
  int64_t pages_dropped = 0;      // of sessions, from a full host
  int64_t restores_declined = 0;  // because computing again was expected to be faster
  int64_t restores_late = 0;      // given up: they took longer than computing would have
  int64_t stores_given_up = 0;    // because their blocks were needed
  double store_bytes_per_second = 0, load_bytes_per_second = 0;  // as measured; 0: not yet
  double prefill_tokens_per_second = 0;                          // as measured; 0: not yet
  int32_t jobs_in_flight = 0;
};

}  // namespace quire
