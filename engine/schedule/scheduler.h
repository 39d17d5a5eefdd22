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

#include "engine/masks/output_guide.h"
#include "engine/values/cache_stats.h"
#include "engine/values/copy_plan.h"
#include "engine/values/kv_events.h"
#include "engine/values/mask_board.h"
#include "engine/values/output_sink.h"
#include "engine/values/request.h"
#include "engine/values/scheduler_config.h"
#include "engine/values/scheduler_events.h"
#include "engine/values/scheduler_view.h"
#include "engine/values/session_operation.h"
#include "engine/values/step_plan.h"
#include "engine/values/step_result.h"
#include "engine/values/tenant_limits.h"

namespace quire {

class KvEventSource;
class SessionStore;

class Scheduler {
 public:
  static constexpr int32_t kMaxExpiriesPerCall = 64;

  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  // From now on these limits apply; before the first call every tenant has the defaults of
  // TenantLimits. Requires a valid table. A tenant above its bound of host memory loses pages that
  // no session keeps: O(tenants + pages lost).
  void SetTenants(const TenantTable& table);
  // Takes a validated request that is no turn and fits the model and the pool (Fits). It ends with
  // one FinishEvent in some later call's events.
  void Add(std::unique_ptr<Request> request);
  // Takes several such requests of one tenant that have the same prompt. The first computes it, and
  // the others wait for its first token: then they find the KV of all full blocks (WaitingLine).
  // Where the prefix cache is off, or the first request bypasses it, each is taken as by Add.
  void AddAnswers(std::vector<std::unique_ptr<Request>> requests);
  // Opens the request's turn and takes the request as Add does, or refuses it. A TurnStart event
  // says which (engine/schedule/turns.h).
  void AddTurn(std::unique_ptr<Request> request, int64_t now_ns, SchedulerEvents& events);
  // Whether a request of this many tokens can ever run alone in this pool. Reads the configuration
  // only: any thread.
  bool Fits(int64_t prompt_tokens, int64_t max_tokens) const;
  // Ends a request with `reason`; unknown ids are ignored (the end may have crossed the cancel).
  // The FinishEvent is emitted at once; blocks and row return when the steps in flight retire. The
  // FinishEvent of a turn is emitted then, when the next turn may begin. The session keeps the
  // first `keep_output` tokens of the turn's output, also if the turn has just ended (Turns::Cut).
  void Cancel(RequestId id, FinishReason reason, int64_t now_ns, SchedulerEvents& events,
              int32_t keep_output = kKeepAll);
  // Pauses or resumes a request whose reader is behind. A paused request releases its row and
  // blocks, delays no other request, and resumes where it stopped, with the same tokens. Tokens of
  // steps in flight still come. Idempotent; unknown ids are ignored.
  void SetPaused(RequestId id, bool paused);
  // Ends every live request with `reason`, however many in one call: for shutdown, and for an
  // engine that cannot continue.
  void CancelAll(FinishReason reason, int64_t now_ns, SchedulerEvents& events);
  // Ends requests whose deadline has passed, earliest first, at most kMaxExpiriesPerCall of them.
  // If there are more, NextDeadline stays in the past: call again soon.
  void ExpireDeadlines(int64_t now_ns, SchedulerEvents& events);

  // Fills `plan` (cleared, its step number set). False: nothing to run before a step in flight
  // retires or a request arrives; the plan is unused and the step number not consumed. Never false
  // while HasWork, no step is in flight and WaitsForCopies and WaitsForMasks are false.
  bool Schedule(int64_t now_ns, StepPlan& plan, SchedulerEvents& events);
  // Takes the result of the oldest step in flight.
  void Retire(const StepResult& result, int64_t now_ns, SchedulerEvents& events);
  // The workers died, and only the KV on the host survives. Requeues every live request with its
  // tokens, empties the pool, and forgets the steps and copies in flight. A request that was
  // requeued twice before ends with kEngineFault.
  void RequeueAll(int64_t now_ns, SchedulerEvents& events);

  // --- Masks of requests with a guide.
  // The next guide whose mask is to be made; null if there is none.
  std::unique_ptr<OutputGuide> NextMask();
  // Takes a guide back with its mask. A request whose mask has no token ends with kNoToken.
  void OnMask(std::unique_ptr<OutputGuide> guide, int64_t now_ns, SchedulerEvents& events);
  // Where masks go that come while their step runs; null: none may. The board's memory outlives the
  // steps planned meanwhile; it changes only while none is in flight.
  void SetMaskBoard(const MaskBoard* board);
  // A draw of the oldest step in flight has no answer on the board yet.
  bool AwaitsMasks() const;
  // Withholds the masks that the oldest step in flight still waits for: their draws are planned
  // again.
  void WithholdMasks(int64_t now_ns);
  // A live request waits for its mask.
  bool WaitsForMasks() const;

  // --- Sessions.
  SessionAnswer Run(SessionOperation operation, int64_t now_ns);
  void SetSessionObserver(SessionObserver* observer);
  SessionStore& sessions();

  // --- Copies between device and host, and timers.
  // The next copy job to send now; false if there is none. The caller reports its ack later,
  // kFailed if it could not send the job.
  bool NextCopy(int64_t now_ns, CopyJob& job);
  void OnCopy(const CopyAck& ack, int64_t now_ns);
  // The first `count` pages of host memory are ready for copies; never fewer than before. Until
  // then nothing is stored there.
  void OnPagesReady(int32_t count);
  // Ends requests whose deadline has passed and sessions whose lease has run out; bounded. The
  // caller calls it in every iteration of its loop, and at NextTimer.
  void OnTimer(int64_t now_ns, SchedulerEvents& events);
  int64_t NextTimer() const;  // kNoDeadline if there is none
  // Copies are under way, or pins and exports hold blocks: work that cannot run now may have to
  // wait for them.
  bool WaitsForCopies() const;

  bool HasWork() const;  // any live request that is not paused
  int32_t steps_in_flight() const;
  // Earliest deadline of any live request, kNoDeadline if none.
  int64_t NextDeadline() const;
  SchedulerLoad Load() const;  // O(1)
  // Appends the figures of each tenant whose figures changed since the last call.
  void TakeTenantChanges(std::vector<TenantStats>& figures);
  TieringStats tiering_stats() const;
  CacheStats cache_stats() const;
  // Reads the next part of a view: the owner of all KV, and the requests by priority. True once
  // `view` is complete but for its times; the next call begins another one (ViewTaker).
  bool ReadView(SchedulerView& view);

  // --- The prefix cache.
  // The changes of the nodes with KV, told while a tenant has subscribers.
  KvEventSource& kv_events();
  // Drops the KV that CacheFlush names. O(nodes).
  FlushedCache Flush(const CacheFlush& flush);

  // Recomputes every derived count from first principles; aborts on a difference. O(state).
  void CheckInvariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
