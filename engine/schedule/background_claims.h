// BackgroundClaims: what requests claim from background sequences (Sequence::background),
// whichever tenant they are of: rows and blocks that they wait for, and most of a step's prompt
// tokens. One thread.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/schedule/fair_walk.h"
#include "engine/schedule/live_sequences.h"
#include "engine/values/scheduler_config.h"

namespace quire {

class BackgroundClaims {
 public:
  // Waiting sequences looked at in one step.
  static constexpr int32_t kLookAhead = 16;
  // While requests run, and for kSharedNs after, the prompts of background sequences get this part
  // of a step: the two steps in flight delay a request that comes by less than one step with a
  // whole budget.
  static constexpr int32_t kPart = 3;  // a third
  static constexpr int64_t kSharedNs = 10'000'000'000;

  // Both outlive this.
  BackgroundClaims(const SchedulerConfig& config, LiveSequences& sequences, FairWalk& walk);

  // Preempts for the requests that `walk` has next; restarts the walk. Returns the number of
  // preemptions. Costs nothing while no background sequence runs.
  int32_t MakeRoom(int64_t now_ns);
  // Begins a step in which prompts may have `budget` tokens.
  void ShareBudget(int64_t now_ns, int32_t budget);
  // Of these, the tokens left for prompts of background sequences.
  int32_t budget() const { return budget_; }
  void Spend(int32_t tokens) { budget_ -= tokens; }

 private:
  bool Lacks(int32_t rows, int32_t blocks) const;
  Sequence* Victim() const;

  const SchedulerConfig config_;
  LiveSequences& sequences_;
  FairWalk& walk_;
  int32_t budget_ = 0;
  int64_t shared_until_ns_ = std::numeric_limits<int64_t>::min();
};

}  // namespace quire
