// Differences of counters, divided by the steps that were timed.
#include "server/timeline/step_breakdown.h"

#include "quire/v1/control.pb.h"

namespace quire {

void FillBreakdown(const EngineStats& before, const EngineStats& after, double seconds,
                   v1::StepBreakdown* breakdown) {
  breakdown->set_seconds(seconds);
  breakdown->set_steps(after.steps - before.steps);
  breakdown->set_prompt_tokens(after.prompt_tokens - before.prompt_tokens);
  breakdown->set_generated_tokens(after.generated_tokens - before.generated_tokens);
  for (size_t i = 0; i < after.sampled.size(); ++i) {
    const SampledSteps& now = after.sampled[i];
    const SampledSteps then = i < before.sampled.size() ? before.sampled[i] : SampledSteps();
    v1::StepBreakdown::Rank* rank = breakdown->add_ranks();
    rank->set_rank(static_cast<uint32_t>(i));
    rank->set_timed_steps(now.steps - then.steps);
    if (now.steps == then.steps) continue;
    for (int part = 0; part < kNumStepParts; ++part) {
      const auto index = static_cast<size_t>(part);
      v1::StepBreakdown::Part* to = rank->add_parts();
      to->set_name(Name(static_cast<StepPart>(part)));
      to->set_seconds(static_cast<double>(now.total[index] - then.total[index]) * 1e-9 /
                      static_cast<double>(now.steps - then.steps));
    }
  }
}

}  // namespace quire
