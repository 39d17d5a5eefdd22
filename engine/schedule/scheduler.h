// Scheduler: continuous batching as a pure state machine. No threads, no clock, no device: the same
// calls give the same plans. A sequence has computed <= planned <= known tokens; a step is a token
// budget, filled with decoding sequences first, then running prefill chunks, then admissions. There
// are no prefill and decode phases, and preemption is release and requeue.
//
// One thread. Never allocates in the steady state (capacities are taken in the constructor).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "engine/output_sink.h"
#include "engine/request.h"
#include "engine/schedule/session_store.h"
#include "engine/schedule/tiering.h"
#include "engine/step_plan.h"

namespace quire {

struct SchedulerConfig {
  int32_t num_blocks = 0;              // of the pool, the null block (id 0) included
  int32_t block_size = 16;             // tokens
  int32_t max_model_len = 0;           // tokens, prompt and output
  int32_t max_num_seqs = 0;            // rows
  int32_t max_num_batched_tokens = 0;  // budget of a step
  int32_t max_num_queued_reqs = 0;     // capacity of the queue; Engine refuses beyond it
  int32_t max_partial_prefills = 4;
  int32_t growth_horizon = 128;  // output tokens reserved at admission
  bool prefix_cache = true;
  int32_t num_pages = 0;  // of host memory
  SessionConfig sessions;
  TieringConfig tiering;
};

// Scheduler::Cancel: the turn's session keeps every token of the output.
inline constexpr int32_t kKeepAll = std::numeric_limits<int32_t>::max();

// What one call changed, to be delivered and counted by the caller. Reused: cleared by the caller.
struct SchedulerEvents {
  std::vector<TokenEvent> tokens;
  std::vector<FinishEvent> finishes;
  int32_t preempted = 0;  // by Schedule: running ones sent back to the queue
  int32_t admitted = 0;   // by Schedule: waiting ones that began or resumed
};

struct SchedulerLoad {
  int32_t running = 0;         // sequences being computed
  int32_t waiting = 0;         // queued, preempted ones included
  int32_t paused = 0;          // neither, because their readers are behind
  int64_t waiting_tokens = 0;  // prompt tokens of the waiting
  int32_t restoring = 0;       // neither, because their KV comes back from the host
  int32_t free_blocks = 0;     // for the taking: cached ones included
  int32_t cached_blocks = 0;
  int32_t total_blocks = 0;      // without the null block
  int64_t tokens_in_flight = 0;  // known tokens of the running
};

// What was looked for in the prefix cache and in sessions, where it was found, and what is kept.
struct CacheStats {
  int64_t queried_tokens = 0;  // of admitted requests: tokens of their prompts
  int64_t device_tokens = 0;   // of those, found on the device
  int64_t host_tokens = 0;     // and brought back from the host
  int64_t computed_tokens = 0;
  int64_t evicted_blocks = 0;
  int64_t kept_lost = 0;  // of those, blocks of idle sessions that were nowhere else
  int32_t cached_blocks = 0;
  int32_t host_pages_used = 0;
  int32_t host_pages = 0;
  int64_t sessions = 0;
  int64_t session_tokens = 0;
  std::array<int64_t, 8> sessions_by_state{};  // by SessionState
};

class Scheduler {
 public:
  static constexpr int32_t kMaxExpiriesPerCall = 64;

  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  // Takes a validated request that fits the model and the pool (Fits). Its only exits are one
  // FinishEvent in some later call's events.
  void Add(std::unique_ptr<Request> request);
  // Whether a request of this many tokens can ever run alone in this pool. Reads the configuration
  // only: any thread.
  bool Fits(int64_t prompt_tokens, int64_t max_tokens) const;
  // Ends a request with `reason`; unknown ids are ignored (the end may have crossed the cancel).
  // The FinishEvent is emitted at once; blocks and row return when the steps in flight retire. Of a
  // session's turn it is emitted then, when the next turn may begin. The session keeps the first
  // `keep_output` tokens of the output.
  void Cancel(RequestId id, FinishReason reason, int64_t now_ns, SchedulerEvents& events,
              int32_t keep_output = kKeepAll);
  // A request whose reader is behind: it gives up row and blocks, disturbs nobody, and goes on
  // where it stopped, with the same tokens, when it is no longer paused. Tokens of steps in flight
  // still come. Idempotent; unknown ids are ignored.
  void SetPaused(RequestId id, bool paused);
  // Ends every live request with `reason`, however many in one call: for shutdown, and for an
  // engine that cannot go on.
  void CancelAll(FinishReason reason, int64_t now_ns, SchedulerEvents& events);
  // Ends requests whose deadline has passed, earliest first, at most kMaxExpiriesPerCall of them.
  // If there are more, NextDeadline stays in the past: call again soon.
  void ExpireDeadlines(int64_t now_ns, SchedulerEvents& events);

  // Fills `plan` (cleared, its step number set). False: nothing to run before a step in flight
  // retires or a request arrives; the plan is unused and the step number not consumed. Never false
  // while HasWork, no step is in flight and WaitsForCopies is false.
  bool Schedule(int64_t now_ns, StepPlan& plan, SchedulerEvents& events);
  // Takes the result of the oldest step in flight.
  void Retire(const StepResult& result, int64_t now_ns, SchedulerEvents& events);
  // The workers are gone with all KV but the host's: requeues every live request by its tokens,
  // empties the pool, and forgets the steps and copies in flight. A request already requeued twice
  // ends with kEngineFault.
  void RequeueAll(int64_t now_ns, SchedulerEvents& events);

  // --- Copies between device and host, and what else sessions want of time.
  SessionStore& sessions();
  // The next copy job to be sent now; false if there is none. Its ack is to follow, kFailed if it
  // could not be sent.
  bool NextCopy(int64_t now_ns, CopyJob& job);
  void OnCopy(const CopyAck& ack, int64_t now_ns);
  // Ends requests whose deadline has passed and sessions whose lease has run out; bounded. To be
  // called every turn of the loop, and at NextTimer.
  void OnTimer(int64_t now_ns, SchedulerEvents& events);
  int64_t NextTimer() const;  // kNoDeadline if there is none
  // Copies are under way, or others than requests (pins, exports) hold blocks: work that cannot run
  // now may have to wait for them.
  bool WaitsForCopies() const;

  bool HasWork() const;  // any live request that is not paused
  int32_t steps_in_flight() const;
  // Earliest deadline of any live request, kNoDeadline if none.
  int64_t NextDeadline() const;
  SchedulerLoad Load() const;  // O(1)
  const TieringStats& tiering_stats() const;
  CacheStats cache_stats() const;

  // Recomputes every derived count from first principles; aborts on a difference. O(state).
  void CheckInvariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
