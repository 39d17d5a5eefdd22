// StepPlanner: decides which sequences run in the next step, and how many tokens of each. It first
// chooses (decoding sequences, then running prefills, then sequences whose KV came back from the
// host, then admissions), then writes the choice down as a plan. One thread.
//
// Between tenants: running prefills and admissions of one priority take turns by served tokens
// (tenants/tenant_accounts.h), the least served first. A tenant below its part of the rows and
// blocks takes what its next sequence lacks from a tenant above its part, in one preemption a row.
//
// Background sequences (engine/values/background.h) come behind all requests, of any tenant, and
// are preempted for those first.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/schedule/background_claims.h"
#include "engine/schedule/fair_walk.h"
#include "engine/schedule/guess_choice.h"
#include "engine/schedule/live_sequences.h"
#include "engine/schedule/part_claims.h"
#include "engine/schedule/prompt_pacer.h"
#include "engine/schedule/steps_in_flight.h"
#include "engine/values/step_plan.h"

namespace quire {

class StepPlanner {
 public:
  // Waiting sequences looked at in one step when the first of them do not fit.
  static constexpr int32_t kLookAhead = PartClaims::kLookAhead;
  // Admissions that may overtake a waiting sequence; after these no other does.
  static constexpr int32_t kMaxBypasses = 32;
  // The same of a sequence with a head start: it is waited for.
  static constexpr int32_t kMaxBypassesOfHeadStart = 4;
  // Steps without a token after which a running prefill goes first, however long it is.
  static constexpr int32_t kMaxStepsUnserved = 4;
  // Preemptions after which a sequence is admitted with all the blocks it can ever need, and is
  // preempted only for a higher priority. This ends every chain of preemptions.
  static constexpr int32_t kMaxPreemptions = PartClaims::kMaxPreemptions;
  // A tenant with more than a step's budget to compute is a flood. While another tenant with less
  // was active in this time, floods leave one row free, and all their prompts together get a part
  // of a step: the steps in flight delay the other tenant's next request by a chunk at most.
  static constexpr int64_t kSharedNs = 10'000'000'000;
  static constexpr int32_t kFloodPart = 3;  // a third
  // In the step of a request of another tenant that comes first, a quarter of that.
  static constexpr int32_t kFloodPartBesideFirst = 4;
  static constexpr int32_t kMinRowsToLeave = 8;

  // `sequences`, `pacer` and `guesses` outlive the planner.
  StepPlanner(const SchedulerConfig& config, LiveSequences& sequences, PromptPacer& pacer,
              GuessChoice& guesses);

  // Fills `plan` and `record` with one step; leaves them empty if nothing can run now. Both are
  // empty on entry, the step number aside. Adds to the counts of `events`.
  void Plan(int64_t now_ns, StepPlan& plan, StepRecord& record, SchedulerEvents& events);
  void SetLateMasks(bool on) { late_masks_ = on; }  // Scheduler::SetMaskBoard
  // In the last plan a sequence found no block, and no sequence that could give one up.
  bool starved() const { return starved_; }
  // Blocks were given up for others, so no waiting sequence was looked at.
  bool made_room() const { return made_room_; }
  // A waiting sequence cannot begin before pins end.
  bool pins_in_the_way() const { return pins_in_the_way_; }

 private:
  // A sequence, and how many of its tokens the step computes, guesses included.
  struct Choice {
    Sequence* sequence = nullptr;
    int32_t count = 0;
    int32_t guesses = 0;
  };

  static constexpr int32_t kNoPrefill = std::numeric_limits<int32_t>::max();

  void Preempt(Sequence& victim);
  void ChooseRunning();
  bool EnsureBlock(Sequence& sequence);
  Sequence* Victim(const Sequence& beneficiary) const;
  void ShareBudget(int64_t now_ns);
  void SortPrefills();
  void FindShortest();
  void FindFloods();
  bool IsFlood(AccountId id) const;
  int32_t MostOf(const Sequence& sequence) const;
  bool LeavesRow(const Sequence& sequence) const;
  bool HasMaskToSend(const Sequence& sequence) const;
  void Spend(const Sequence& sequence, int32_t tokens);
  size_t NextPrefill(size_t first, size_t end) const;
  bool ComesBefore(const Sequence& prefill, const Sequence& waiting) const;
  void ServePrefill(Choice& choice);
  void TakeBackFromSlowCopies(int64_t now_ns);
  void BeginAdmissions(int64_t now_ns);
  bool AdmitNext(int64_t now_ns);
  void BeginRestored(int64_t now_ns);
  bool TryAdmit(Sequence& sequence, int64_t now_ns);
  bool TryBegin(Sequence& sequence, SequenceKv::Found found, int32_t room, int64_t now_ns);
  void SpendLeftover();
  bool MayBeOvertaken(const Sequence& sequence) const;
  int32_t FirstChunk(const Sequence& sequence, int32_t tokens) const;
  int32_t Capped(const Sequence& sequence, int32_t tokens) const;
  void Emit(const Choice& choice, StepPlan& plan, StepRecord& record);
  void EmitBlocks(Sequence& sequence, int32_t end, StepPlan& plan);

  const SchedulerConfig config_;
  LiveSequences& sequences_;
  SequenceKv& kv_;            // of `sequences_`
  Tiering& tiering_;          // of `kv_`
  TenantAccounts& accounts_;  // of `sequences_`
  FairWalk walk_;
  PartClaims claims_;
  BackgroundClaims background_;
  PromptPacer& pacer_;
  GuessChoice& guesses_;
  bool late_masks_ = false;

  // Of the step being planned.
  int64_t now_ns_ = 0;
  std::vector<Choice> decodes_;
  std::vector<Choice> prefills_;  // running ones in serving order, then admitted ones
  std::vector<Sequence*> passed_over_;
  int32_t budget_ = 0;          // tokens left
  int32_t prefill_budget_ = 0;  // tokens left after the decoding sequences
  int32_t long_budget_ = 0;     // tokens left for prefills longer than prefill_budget_
  int32_t found_budget_ = 0;    // found tokens that the plan can still carry
  int32_t mask_budget_ = 0;     // masks that the plan can still carry
  bool shared_ = false;         // floods are held back
  int32_t flood_budget_ = 0;    // tokens left for prefills of floods, if `shared_`
  int64_t shared_until_ns_ = std::numeric_limits<int64_t>::min();
  int32_t looked_at_ = 0;       // waiting sequences; past kLookAhead, no more are admitted
  int32_t claimed_blocks_ = 0;  // draining blocks that stalled sequences wait for
  int32_t unfinished_prefills_ = 0;
  // A sequence or a store gave up blocks in this step; a sequence needed one that none could.
  bool made_room_ = false, starved_ = false, pins_in_the_way_ = false;
  int32_t num_preempted_ = 0, num_admitted_ = 0;
};

}  // namespace quire
