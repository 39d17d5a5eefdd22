// Engine: tokens in, tokens out. Accepts or refuses a request with a Status and guarantees exactly
// one FinishEvent per accepted request while the process lives, also for cancelled and failed
// requests. Owns the scheduler thread (the only writer of requests, sessions, rows and blocks) and
// the worker group behind a Transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/masks/mask_stats.h"
#include "engine/step_sizes.h"
#include "engine/values/cache_stats.h"
#include "engine/values/kv_events.h"
#include "engine/values/output_sink.h"
#include "engine/values/request.h"
#include "engine/values/scheduler_config.h"
#include "engine/values/scheduler_view.h"
#include "engine/values/session_operation.h"
#include "engine/values/step_times.h"
#include "engine/values/tenant_limits.h"
#include "engine/worker/rank/graph_use.h"

namespace quire {

// Snapshot of the counters for metrics and GetLoad; fields may be one turn of the loop apart.
struct EngineStats {
  SchedulerLoad load;
  CacheStats cache;
  TieringStats tiering;
  uint64_t steps = 0;          // retired
  uint64_t prompt_tokens = 0;  // known tokens computed; once more after a preemption
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t guessed_tokens = 0;        // that steps verified
  uint64_t accepted_guesses = 0;      // of these, the ones that were right
  int64_t last_step_tokens = 0;       // computed by the last retired step
  StepSizes step_sizes;               // of all retired steps
  int64_t last_step_ns = 0;           // its duration in the worker
  int64_t steps_ns = 0;               // the sum of the durations of all retired steps
  std::vector<SampledSteps> sampled;  // by rank; empty before the first
  int64_t last_retired_ns = 0;        // steady clock; 0: none yet
  bool work_waiting = false;          // live requests exist that steps could compute
  int64_t work_since_ns = 0;          // steady clock; when the first of them came to an idle engine
  std::string fault;               // why the worker group is dead for good; empty while it is not
  bool recovering = false;         // the workers died, and new ones are being started
  uint64_t recoveries = 0;         // times that workers died and were replaced
  uint64_t deadline_refusals = 0;  // requests that could not have met their deadline
  uint64_t rank_mismatches = 0;    // steps on which ranks disagreed; each ended its worker group
  MaskStats masks;                 // of requests whose output follows a structure
  std::vector<GraphUse> graphs;    // one per batch size whose steps are captured, ascending
};

class KvEventLog;
class Transport;

class Engine {
 public:
  // Takes the transport to a started worker group and starts the scheduler thread. `graph_sizes`:
  // the batch sizes whose steps the workers capture; empty: none, as on the CPU.
  Engine(const SchedulerConfig& config, const EngineLimits& limits,
         std::unique_ptr<Transport> transport, OutputSink* sink, std::vector<int32_t> graph_sizes);
  // Ends every live request with kDraining, stops the workers, joins. The sink outlives the engine;
  // no other call may be running or follow.
  ~Engine();

  // Hands a request over, a session's turn included. OK: its events follow, a TurnStart first if it
  // is a turn. INVALID_ARGUMENT: it can never run here (the message says which limit).
  // UNAVAILABLE: queue full (requests or tokens), draining, or worker fault; retry later.
  // RESOURCE_EXHAUSTED: a limit of the tenant's own. DEADLINE_EXCEEDED: the deadline would pass
  // before the first token (engine/tenant_gate.h has both). `predicted_ttft_ns`, if given: from
  // the request's arrival to its first token; 0 when nothing is predicted. Any thread; never
  // blocks.
  absl::Status Submit(std::unique_ptr<Request> request, int64_t* predicted_ttft_ns = nullptr);
  // The same of one or more answers to one prompt, which is computed once if the prefix cache may
  // be used: requests of one tenant that differ in their id, cookie, sampling and reading alone,
  // and are no turns. All are accepted or none; from then on each is a request of its own, and
  // takes a row. The queue and the tenant's limits count the requests, and the prompt's tokens
  // once.
  absl::Status Submit(std::vector<std::unique_ptr<Request>> answers,
                      int64_t* predicted_ttft_ns = nullptr);
  // The limits and weights of tenants from now on, also for requests that wait or run; before the
  // first call every tenant has the defaults of TenantLimits. A lower limit ends no request.
  // INVALID_ARGUMENT as from ValidateTenantTable; the limits then stay as they were. Any thread;
  // never blocks.
  absl::Status SetTenants(const TenantTable& table);
  // Ends a request. Idempotent; unknown ids are ignored. `keep_output`: how many tokens of a turn's
  // output its reader was given; the session keeps no more, even if the turn has just ended by
  // itself. Any thread; never blocks.
  void Cancel(RequestId id, FinishReason reason, int32_t keep_output = kKeepAll);
  void CancelAll(FinishReason reason);
  // Stops or resumes computing a request whose reader is behind; a few tokens may still come after
  // a pause. A paused request holds neither row nor KV blocks. Idempotent; unknown ids are ignored.
  // Any thread; never blocks.
  void SetPaused(RequestId id, bool paused);
  // Runs an operation on the sessions between two steps, in the order of the calls, also while
  // draining, while workers are replaced, and after a fault. An operation that has not run when the
  // engine ends is dropped with its completion. Any thread; never blocks.
  void Run(SessionOperation operation, SessionCompletion done);
  // From now on the observer hears of changes. It outlives the engine. Any thread; never blocks.
  void SetSessionObserver(SessionObserver* observer);
  // Profilers that are attached to the workers record the next `steps` steps. `uncaptured`: their
  // operations are enqueued one by one, so that the ranges of layers show. Any thread.
  void ProfileSteps(int32_t steps, bool uncaptured);
  // From now on Submit refuses with UNAVAILABLE; running and queued requests continue.
  void StartDrain();
  bool Idle() const;  // no live request
  EngineStats Stats() const;
  // The figures of all tenants that are named, had requests of late or have KV in host memory, in
  // the order of their ids. Bounded: TenantTable::kMaxTenants, TenantGate::kMaxEntries, the live
  // requests, and the pages of host memory.
  std::vector<TenantStats> Tenants() const;
  // The first token of a request of this tenant and length, if it came now; nullopt: too little
  // was measured yet.
  std::optional<double> PredictTtftSeconds(TenantId tenant, int64_t prompt_tokens) const;
  // Takes a view, in parts between steps, and gives it to `done` on the scheduler thread: `done`
  // must hand it over and not block. Costs a millisecond or two for 100,000 blocks in all: ask at
  // most once a second, and only while its reader looks. `done` is dropped without a call if the
  // engine ends first. Any thread; never blocks.
  using ViewCompletion = std::function<void(const SchedulerView&)>;
  void View(ViewCompletion done) const;
  // The changes of the blocks with KV, for subscribers. Lives as long as the engine. Any thread.
  KvEventLog& kv_events();
  // Drops KV from the prefix cache between two steps, in the order of the calls of Run and Submit.
  // Takes about a millisecond for 10,000 blocks. `done` is called on the scheduler thread, must
  // hand over and not block, and is dropped without a call if the engine ends first. Any thread;
  // never blocks.
  using FlushCompletion = std::function<void(const FlushedCache&)>;
  void FlushCache(const CacheFlush& flush, FlushCompletion done);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
