// PromptPace: how much of a step prompts may have while other sequences decode.
//
// First, a cap (PromptCap). Beyond some tokens a larger step computes no more of them a second, and
// every row beside them waits longer for its next token. Only behind a long queue steps are larger:
// fewer of them compute it.
//
// Below the cap, a balance (PromptBudget). Prompts of c*tokens seconds wait beside N rows that
// decode, d seconds a step. Steps that give prompts y seconds compute them in W/y steps,
// W = c*tokens. Each row then waits y longer between two tokens: N * y * W/2, summed over rows and
// time. Each of the M prompts waits d longer in each of these steps than if it were computed at
// once: M * d * W^2/y. That delay counts twice, for the prompt's reader has nothing yet. The sum is
// least at
//
//   y = 2 * sqrt(M * W * d / N)
//
// so a step grows with what waits, and shrinks with the rows that it delays. A step gives prompts
// at least the fixed time of a step, most of which is the weights' read: products of that many
// tokens take no longer than the read, so beside few rows they are nearly free.
#pragma once

#include <cstdint>

#include "engine/values/step_cost.h"

namespace quire {

// The work that a step could take up.
struct PromptDemand {
  int32_t rows = 0;        // N
  int64_t contexts = 0;    // known tokens of these rows, together
  int32_t prompts = 0;     // M: that have a row or can get one
  int64_t tokens = 0;      // of these prompts, not computed yet
  double mean_before = 0;  // tokens of such a prompt that have been computed
};

// A step gives prompts no less than this: progress is certain, whatever was measured.
inline constexpr int32_t kLeastPromptTokens = 64;

// A queue that takes more than so many mixed steps is long.
inline constexpr int32_t kLongQueueSteps = 16;

// The most prompt tokens of a step, of `most` that are left: those that bring the step to
// `mixed_step` tokens, or 1/kLongQueueSteps of what waits if that is more. `most` where no row
// decodes or `mixed_step` is 0. Never grows with the rows, nor shrinks with the queue.
int32_t PromptCap(int32_t mixed_step, const PromptDemand& demand, int32_t most);

// The most prompt tokens of a step: `most`, or fewer while rows decode. Never grows with the rows
// if their contexts are of one length. `most` where costs are not known or no row decodes.
int32_t PromptBudget(const StepCost& cost, const PromptDemand& demand, int32_t most);

// Both rules, as they are set.
struct PromptPace {
  int32_t mixed_step = 0;  // of PromptCap
  bool balances = false;   // whether PromptBudget holds

  // The most prompt tokens of a step, of `most` that are left.
  int32_t Tokens(const StepCost& cost, const PromptDemand& demand, int32_t most) const;
};

}  // namespace quire
