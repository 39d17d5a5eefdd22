// GroupProgress and StartProgress: whether the ranks of a group stand still, and which rank holds
// the others up. Ranks wait for each other, so when one stands still, soon all do: only their
// counts tell the rank that the others wait for.
//
// Used by one thread. Both measure from the first call that saw a rank stand still: call them
// often.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/worker/process/step_memory.h"

namespace quire {

// Of a ready group.
class GroupProgress {
 public:
  struct Stall {
    std::string work;             // "no step for 2003 ms (step 7 of 8)"
    std::vector<int32_t> behind;  // the ranks with the lowest counts; all ranks: no rank is behind
    std::vector<std::string> counts;  // by rank: "launched 6 steps, begun 5 collectives, ..."
  };

  explicit GroupProgress(std::shared_ptr<const StepMemory> memory);
  // A value when a rank has work and has finished no step, or no copy, for longer than the timeout.
  std::optional<Stall> Check(int64_t now_ns, double timeout_seconds);

 private:
  enum Kind : uint8_t { kSteps, kLoads, kStores, kNumKinds };
  // Work of one kind of one rank: how much is finished, and since when it stands still with work
  // waiting.
  struct Progress {
    uint64_t finished = 0;
    int64_t waiting_since_ns = 0;
  };
  struct Rank {
    Progress progress[kNumKinds];
  };

  uint64_t Asked(Kind kind, int32_t rank) const;
  uint64_t Finished(Kind kind, int32_t rank) const;
  Stall Describe(Kind kind, int64_t waited_ns) const;

  const std::shared_ptr<const StepMemory> memory_;
  std::vector<Rank> ranks_;
};

// Of a group that starts. A phase ends for a rank with its next message or its next collective.
// Ranks that are behind may take as long again as the slowest of the others took, and the timeout
// on top. While no rank is ahead there is no deadline; the groups of one never have one.
class StartProgress {
 public:
  // The work of a rank since it was started.
  struct Stage {
    uint64_t messages = 0;
    uint64_t collectives = 0;
    auto operator<=>(const Stage&) const = default;
  };
  struct Lag {
    std::vector<int32_t> ranks;
    int64_t waited_ns = 0;  // since the phase began
    int64_t others_ns = 0;  // that the slowest of the other ranks took
  };

  StartProgress(int32_t ranks, int64_t now_ns);
  // The ranks were given their next order.
  void Begin(int64_t now_ns);
  // `stages`: of each rank. A value when a rank is past its deadline.
  std::optional<Lag> Check(std::span<const Stage> stages, int64_t now_ns, double timeout_seconds);

 private:
  int64_t begin_ns_;                     // of the phase
  Stage slowest_;                        // of the last Check
  std::vector<int64_t> ahead_since_ns_;  // by rank: left `slowest_` behind; 0: has not
};

}  // namespace quire
