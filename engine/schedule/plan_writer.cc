// Writes the chosen work down as a plan: everything that the workers' row tables do not hold yet.
#include <algorithm>

#include "engine/schedule/new_row.h"
#include "engine/schedule/step_planner.h"
#include "kernels/check.h"

namespace quire {

void StepPlanner::Emit(const Choice& choice, StepPlan& plan, StepRecord& record) {
  if (choice.count == 0) return;
  Sequence& s = *choice.sequence;
  const int32_t end = s.planned + choice.count;
  if (s.new_row) WriteNewRow(s, plan);
  s.new_row = false;
  if (s.cloned != kNoNode && s.table_blocks == 0) {
    plan.block_clones.push_back({kv_.ClonedBlock(s), s.blocks[s.planned / config_.block_size]});
  }
  EmitBlocks(s, end, plan);
  // The score of a chunk's last position is of the token behind it.
  const bool scores = s.request->reading.prompt_top >= 0 && end < s.num_prompt;
  EmitTokens(s, scores ? end + 1 : end, plan);
  const bool sample = end == s.expected();
  if (sample && s.guided()) WriteMask(s, plan);
  plan.work.push_back({s.row, s.planned, choice.count, sample});
  WriteReadings(s, config_.hidden_size, plan);
  plan.num_tokens += choice.count;
  plan.num_samples += sample;
  record.work.push_back({&s, choice.count, sample});
  record.shape.Add(s.planned, choice.count);
  s.planned = end;
  s.pending += sample;
  s.table_tokens += sample;  // the worker writes what it samples
  ++s.steps_in_flight;
}

void StepPlanner::EmitBlocks(Sequence& sequence, int32_t end, StepPlan& plan) {
  while (static_cast<int32_t>(sequence.blocks.size()) * config_.block_size < end) {
    CHECK(sequences_.TakeBlock(sequence));  // reserved at admission
  }
  for (; sequence.table_blocks < static_cast<int32_t>(sequence.blocks.size());
       ++sequence.table_blocks) {
    plan.block_adds.push_back(
        {sequence.row, sequence.table_blocks, sequence.blocks[sequence.table_blocks]});
  }
}

void StepPlanner::EmitTokens(Sequence& sequence, int32_t end, StepPlan& plan) const {
  if (sequence.table_tokens >= end) return;
  plan.num_found += std::max(0, sequence.planned - sequence.table_tokens);
  TokenRun run;
  run.row = sequence.row;
  run.start = sequence.table_tokens;
  run.begin = static_cast<uint32_t>(plan.tokens.size());
  run.count = static_cast<uint32_t>(end - sequence.table_tokens);
  const int32_t num_prompt = sequence.num_prompt;
  if (run.start < num_prompt) {
    const auto prompt = sequence.request->prompt.begin();
    plan.tokens.insert(plan.tokens.end(), prompt + run.start, prompt + std::min(end, num_prompt));
  }
  if (end > num_prompt) {
    const auto output = sequence.output.begin();
    plan.tokens.insert(plan.tokens.end(), output + std::max(run.start - num_prompt, 0),
                       output + (end - num_prompt));
  }
  plan.token_runs.push_back(run);
  sequence.table_tokens = end;
}

}  // namespace quire
