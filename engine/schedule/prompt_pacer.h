// PromptPacer: gathers what a step could compute while it is planned, and says how many of its
// tokens prompts get (engine/schedule/pace/prompt_pace.h). One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/schedule/live_sequences.h"
#include "engine/schedule/pace/prompt_pace.h"
#include "engine/values/scheduler_config.h"

namespace quire {

class PromptPacer {
 public:
  // `cost`, the present cost of steps, outlives the pacer.
  PromptPacer(const SchedulerConfig& config, const StepCost& cost)
      : pace_{config.mixed_step_tokens, config.pace_prompts}, cost_(cost) {}

  // The decoding sequences of a step, and its running prefills.
  void AddRow(const Sequence& sequence) {
    ++demand_.rows;
    demand_.contexts += sequence.known();
  }
  void AddPrompt(const Sequence& sequence) {
    ++demand_.prompts;
    demand_.tokens += sequence.remaining();
    demand_.mean_before += sequence.planned;  // the sum, until Budget
  }
  // The tokens of the step for prompts, of `most` that are left. Of the queue, as many prompts
  // count as there are free rows.
  int32_t Budget(const LiveSequences& sequences, int32_t most) {
    PromptDemand demand = std::exchange(demand_, {});
    const auto waiting = static_cast<int64_t>(sequences.queue().size());
    const int64_t fitting = std::min<int64_t>(waiting, sequences.num_free_rows());
    if (fitting > 0) demand.tokens += sequences.queue().num_tokens() * fitting / waiting;
    demand.prompts += static_cast<int32_t>(fitting);
    demand.mean_before /= std::max(1, demand.prompts);
    if (demand.prompts == 0) return most;
    return last_ = pace_.Tokens(cost_, demand, most);
  }
  // The budget of the last step that had prompts.
  int32_t last() const { return last_; }

 private:
  const PromptPace pace_;
  const StepCost& cost_;
  PromptDemand demand_;
  int32_t last_ = 0;
};

}  // namespace quire
