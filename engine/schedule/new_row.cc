// The ids lie in the order that NewRow states.
#include "engine/schedule/new_row.h"

#include <span>
#include <vector>

#include "kernels/check.h"

namespace quire {

void WriteNewRow(const Sequence& sequence, StepPlan& plan) {
  const SamplingParams& sampling = sequence.request->sampling;
  NewRow row;
  row.row = sequence.row;
  row.num_prompt = sequence.num_prompt;
  row.sampling = sampling.row;
  row.bias_begin = static_cast<uint32_t>(plan.biases.size());
  row.bias_count = static_cast<uint32_t>(sampling.logit_bias.size());
  plan.biases.insert(plan.biases.end(), sampling.logit_bias.begin(), sampling.logit_bias.end());
  row.ids_begin = static_cast<uint32_t>(plan.ids.size());
  if (sampling.min_tokens > sequence.num_output()) {
    row.min_known = sequence.num_prompt + sampling.min_tokens;
    for (const auto* ids : {&sampling.eos_token_ids, &sampling.stop_token_ids}) {
      plan.ids.insert(plan.ids.end(), ids->begin(), ids->end());
    }
  }
  row.banned_count = static_cast<uint32_t>(plan.ids.size()) - row.ids_begin;
  const auto append = [&plan](const std::vector<int32_t>& ids) {
    plan.ids.insert(plan.ids.end(), ids.begin(), ids.end());
    return static_cast<uint32_t>(ids.size());
  };
  row.bad_word_count = append(sampling.bad_words);
  row.allowed_count = append(sampling.allowed_token_ids);
  row.breaker_count = append(sampling.dry_breaker_ids);
  plan.new_rows.push_back(row);
}

void WriteMask(const Sequence& sequence, StepPlan& plan) {
  CHECK(sequence.has_mask());
  const std::span<const uint32_t> mask = sequence.guide->mask();
  plan.masks.push_back({sequence.row, static_cast<uint32_t>(plan.mask_words.size())});
  plan.mask_words.insert(plan.mask_words.end(), mask.begin(), mask.end());
}

}  // namespace quire
