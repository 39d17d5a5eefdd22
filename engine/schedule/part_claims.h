// PartClaims: takes rows and blocks from tenants above their part for waiting sequences of tenants
// below theirs (TenantAccounts::PartOf). A tenant's part is its weight among all that wait or run.
// One thread.
#pragma once

#include <cstdint>

#include "engine/schedule/fair_walk.h"
#include "engine/schedule/live_sequences.h"
#include "engine/values/scheduler_config.h"

namespace quire {

// Blocks that an admission reserves: for the whole prompt and some growth; all that the sequence
// can ever need if it was preempted often (StepPlanner::kMaxPreemptions).
int32_t BlocksToReserve(const SchedulerConfig& config, const Sequence& sequence);
// Blocks kept free so that every running sequence can begin a new block without a preemption. None
// when nothing runs, or else the largest request could never start.
int32_t BlockWatermark(const LiveSequences& sequences);
// Whether the sequence could begin if only the blocks of pinned sessions were in use.
bool FitsBesidePins(const SchedulerConfig& config, LiveSequences& sequences,
                    const Sequence& sequence);

// The first of the waiting sequences that FitsBesidePins; null: none of those that a step looks at.
// The walk is at its beginning, before and after.
const Sequence* FirstBesidePins(const SchedulerConfig& config, LiveSequences& sequences,
                                FairWalk& walk);

class PartClaims {
 public:
  // Waiting sequences looked at in one step.
  static constexpr int32_t kLookAhead = 16;
  // As StepPlanner::kMaxPreemptions says.
  static constexpr int32_t kMaxPreemptions = 2;

  // Both outlive this.
  PartClaims(const SchedulerConfig& config, LiveSequences& sequences, FairWalk& walk);

  // Preempts for the sequences that `walk` has next; restarts the walk. Returns the number of
  // preemptions. Requires that more than one tenant waits or runs.
  int32_t MakeRoom(int64_t now_ns);
  // Whether `sequence` is not preempted for `beneficiary`, though it is behind it in order.
  bool IsSheltered(const Sequence& sequence, const Sequence& beneficiary) const;

 private:
  bool Claim(const Sequence& claimant, int32_t passed);
  Sequence* Victim(const Sequence& claimant) const;
  void CountHoldings();

  const SchedulerConfig config_;
  LiveSequences& sequences_;
  TenantAccounts& accounts_;  // of `sequences_`
  FairWalk& walk_;
  // Of all sequences that have claimed so far.
  int32_t rows_ = 0;
  int32_t blocks_ = 0;
};

}  // namespace quire
