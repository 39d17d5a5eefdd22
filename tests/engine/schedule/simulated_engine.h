// SimulatedEngine: a scheduler driven by hand against a ShadowWorker and a ShadowCopier, for tests.
// Results and acks wait until the test asks for them, so any number of steps and copies can be in
// flight. After every call it checks the scheduler's invariants, the contract of the events, and
// that no row or block gets a new owner while a step or copy in flight may still touch it; each
// breach is a test failure. It keeps its own record of the tokens that every session should have.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/schedule/sessions/session_store.h"
#include "engine/worker/fake/shadow_copier.h"
#include "engine/worker/fake/shadow_worker.h"
#include "tests/engine/masks/scripted_guide.h"

namespace quire {

// A request of a test. Its id is also its sampling seed, which identifies it in plans.
struct RequestSpec {
  int32_t prompt_tokens = 4;
  int32_t max_tokens = 4;
  int32_t min_tokens = 0;
  int32_t priority = 0;
  int64_t arrival_ns = 0;
  int64_t deadline_ns = kNoDeadline;
  bool stops_at_eos = true;
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> prompt;  // empty: prompt_tokens tokens of its own
  TenantId tenant = 0;
  bool bypass_cache = false;
  int32_t max_guesses = 0;
  std::string session;  // not empty: a turn of it; `prompt` follows its tokens
  std::shared_ptr<const ScriptedGrammar> grammar;  // null: the output is free
};

struct Outcome {
  std::vector<int32_t> tokens;
  bool finished = false;
  FinishEvent finish;
  int32_t first_start = -1;  // of its first work
  int32_t keep_output = kKeepAll;
};

// One row's share of a plan, by request.
struct Share {
  RequestId id = 0;
  int32_t start = 0;
  int32_t count = 0;
  int32_t sample = 0;  // draws
  bool operator==(const Share&) const = default;
};

// The expected output of a request alone: the shadow model applied to its own tokens, one by one,
// under every schedule.
struct ExpectedOutcome {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kNone;
};
ExpectedOutcome Expect(RequestId id, const RequestSpec& spec, const ShadowModel& model,
                       int32_t max_model_len);
std::vector<int32_t> PromptOf(RequestId id, const RequestSpec& spec, int32_t vocab_size);

// Four rows over blocks of 4 tokens, and sessions that go to the host when a client asks for it.
SchedulerConfig SessionConfig(int32_t usable_blocks, int32_t num_pages, int32_t max_model_len);

class SimulatedEngine {
 public:
  explicit SimulatedEngine(const SchedulerConfig& config, const ShadowModel& model = {},
                           const ShadowFaults& faults = {});

  void SetTenants(const TenantTable& table) { scheduler_.SetTenants(table); }
  // 0: a turn that the session store refuses.
  RequestId Add(const RequestSpec& spec);
  // Several answers to one prompt, which all have; no turns.
  std::vector<RequestId> AddAnswers(const std::vector<RequestSpec>& specs);
  void Cancel(RequestId id, FinishReason reason = FinishReason::kCancelled,
              int32_t keep_output = kKeepAll);
  void OnTimer();
  // Makes the masks that are wanted; other calls do so too, unless `holds_masks`.
  void MakeMasks();
  // From now on masks may come while their step runs.
  void UseMaskBoard();
  // Sends a copy job; false if there is none to be sent now.
  bool SendCopy();
  // Ends the oldest job of a direction; false if there is none.
  bool FinishCopy(CopyDirection direction);
  // Sends and ends copies until none is left.
  void RunCopies();
  // True if the session has exactly the tokens that it should have.
  void CheckSession(TenantId tenant, const std::string& name);
  // The tokens that the session should have.
  const std::vector<int32_t>& SessionTokens(TenantId tenant, const std::string& name) {
    return sessions_[{tenant, name}];
  }
  // For a test that changes the session's tokens in another way than by a turn.
  void SetSessionTokens(TenantId tenant, const std::string& name, std::vector<int32_t> tokens) {
    last_turn_.erase({tenant, name});
    sessions_[{tenant, name}] = std::move(tokens);
  }
  void CreateSession(TenantId tenant, const std::string& name);
  void CancelAll(FinishReason reason);
  void ExpireDeadlines();
  // Publishes a step; false if nothing can run.
  bool Schedule();
  // Runs and retires the oldest step in flight. Requires one.
  void Retire();
  // Kills the worker and everything in flight; a fresh one takes over.
  void KillWorker();
  // Keeps `depth` steps in flight until nothing is live, then retires the rest. Fails the test if
  // that takes more than `max_steps` steps.
  void RunToEnd(int32_t depth, int32_t max_steps = 100000);
  // Fails the test unless all rows, blocks and pages are free again.
  void ExpectIdle() const;
  // Fails the test unless the request's output is exactly the one that Expect returns.
  void ExpectUndisturbed(RequestId id) const;

  int64_t now_ns = 1;
  int64_t ns_per_token = 0;  // duration of simulated steps
  bool holds_masks = false;
  int32_t check_every = 1;  // invariants are checked after this many calls
  const std::vector<Share>& last_plan() const { return last_plan_; }
  const StepPlan& last_step_plan() const { return last_step_plan_; }
  // The request's share of the last plan; count 0 if it has none.
  Share ShareOf(RequestId id) const;
  const Outcome& outcome(RequestId id) const { return outcomes_.at(id); }
  const RequestSpec& spec(RequestId id) const { return specs_.at(id); }
  const SchedulerLoad load() const { return scheduler_.Load(); }
  int32_t steps_in_flight() const { return scheduler_.steps_in_flight(); }
  int32_t preempted() const { return preempted_; }  // events so far
  int32_t admitted() const { return admitted_; }
  int64_t num_clones() const { return num_clones_; }  // in plans so far
  bool HasWork() const { return scheduler_.HasWork(); }
  Scheduler& scheduler() { return scheduler_; }
  // Ends delivered by the last call, and the samples of the last step retired.
  const std::vector<FinishEvent>& last_finishes() const { return last_finishes_; }
  const StepResult& last_result() const { return last_result_; }
  // The requests of the last step retired that sampled, in plan order.
  const std::vector<RequestId>& last_samplers() const { return last_samplers_; }

 private:
  struct Flight {
    StepPlan plan;
    std::set<int32_t> rows;
    std::set<std::pair<int32_t, RequestId>> blocks;  // and the requests that read or write them
    std::set<std::pair<int32_t, RequestId>> written;
    std::vector<RequestId> samplers;
  };

  std::unique_ptr<Request> MakeRequest(RequestId id, const RequestSpec& spec) const;
  void CutTurn(RequestId id, int32_t keep_output);
  void Settle();
  void ReadPlan(const StepPlan& plan);
  void CheckTenant(const RowWork& work, TenantId tenant);
  void CheckNewRowsAreFree(const StepPlan& plan);
  void CheckWritesAreExclusive();
  void CheckCopies(const CopyJob& job);
  void EndTurn(const FinishEvent& event);

  const SchedulerConfig config_;
  const ShadowModel model_;
  Scheduler scheduler_;
  std::unique_ptr<ShadowWorker> worker_;
  ShadowCopier copier_;
  std::vector<std::byte> board_memory_;
  MaskBoard board_;  // empty: no mask comes late
  std::map<std::pair<TenantId, std::string>, std::vector<int32_t>> sessions_;
  // The last turn of a session, while nothing has changed the session's tokens since.
  std::map<std::pair<TenantId, std::string>, RequestId> last_turn_;
  std::map<int32_t, TenantId> page_tenant_;
  std::vector<CopyJob> copies_;  // in flight
  std::set<RequestId> ended_;    // or to be ended
  int64_t last_end_ns_ = 0;
  int32_t calls_ = 0;
  SchedulerEvents events_;
  std::deque<Flight> flights_;
  std::vector<Share> last_plan_;
  StepPlan last_step_plan_;
  std::map<int32_t, RequestId> row_owner_;
  std::map<int32_t, TenantId> block_tenant_;  // the last writer of a block
  std::map<int32_t, std::vector<int32_t>> row_blocks_;
  std::map<RequestId, RequestSpec> specs_;
  std::map<RequestId, Outcome> outcomes_;
  std::vector<FinishEvent> last_finishes_;
  std::vector<RequestId> last_samplers_;
  StepResult last_result_;
  RequestId next_id_ = 1;
  int32_t preempted_ = 0;
  int32_t admitted_ = 0;
  int64_t num_clones_ = 0;
};

}  // namespace quire
