// The balance between prompts that wait and rows that decode.
#include "engine/schedule/pace/prompt_pace.h"

#include <algorithm>
#include <cmath>

namespace quire {

int32_t PromptCap(int32_t mixed_step, const PromptDemand& demand, int32_t most) {
  if (mixed_step == 0 || demand.rows == 0) return most;
  const int64_t rest = std::max(mixed_step - demand.rows, kLeastPromptTokens);
  const int64_t cap = std::max(rest, demand.tokens / kLongQueueSteps);
  return static_cast<int32_t>(std::min<int64_t>(most, cap));
}

int32_t PromptBudget(const StepCost& cost, const PromptDemand& demand, int32_t most) {
  const double token_seconds = cost.prompt_token + cost.prompt_read * demand.mean_before;
  if (!cost.known || demand.rows == 0 || token_seconds <= 0) return most;
  const double rows = demand.rows;
  const double decode_seconds =
      cost.Seconds({.rows = rows, .contexts = static_cast<double>(demand.contexts)});
  const double waiting_seconds = token_seconds * static_cast<double>(demand.tokens);
  const double balance = 2 * std::sqrt(demand.prompts * waiting_seconds * decode_seconds / rows);
  const double tokens = std::max(cost.step, balance) / token_seconds;
  if (tokens >= most) return most;
  return std::min(most, std::max(kLeastPromptTokens, static_cast<int32_t>(tokens)));
}

int32_t PromptPace::Tokens(const StepCost& cost, const PromptDemand& demand, int32_t most) const {
  const int32_t capped = PromptCap(mixed_step, demand, most);
  return balances ? PromptBudget(cost, demand, capped) : capped;
}

}  // namespace quire
