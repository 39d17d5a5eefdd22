// Writes the chosen work down as a plan: everything that the workers' row tables do not hold yet.
#include <algorithm>

#include "engine/schedule/new_row.h"
#include "engine/schedule/step_planner.h"
#include "kernels/check.h"

namespace quire {
namespace {

// The tokens up to `end` that the row's table does not have, guesses included.
void WriteTokens(Sequence& sequence, int32_t end, StepPlan& plan) {
  if (sequence.table_tokens >= end) return;
  plan.num_found += std::max(0, sequence.planned - sequence.table_tokens);
  const bool decodes = sequence.remaining() <= 1;
  if (decodes) plan.num_decoded += end - std::max(sequence.planned, sequence.table_tokens);
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
                       output + (std::min(end, sequence.known()) - num_prompt));
  }
  if (end > sequence.known()) {
    const auto guesses = sequence.guesser->in_flight();
    plan.tokens.insert(plan.tokens.end(), guesses.begin(), guesses.end());
  }
  plan.token_runs.push_back(run);
  sequence.table_tokens = end;
}

}  // namespace

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
  WriteTokens(s, scores ? end + 1 : end, plan);
  const bool sample = end == s.expected() + choice.guesses;
  const int32_t draws = sample ? 1 + choice.guesses : 0;
  if (sample && s.guided()) WriteMask(s, plan);
  plan.work.push_back({s.row, s.planned, choice.count, draws});
  WriteReadings(s, config_.hidden_size, plan);
  plan.num_tokens += choice.count;
  plan.num_samples += draws;
  record.work.push_back({&s, choice.count, draws});
  if (choice.guesses > 0) {
    record.shape.AddGuesses(s.planned, choice.count);
  } else {
    record.shape.Add(s.planned, choice.count);
  }
  s.planned = end;
  s.pending += draws;
  s.table_tokens += draws == 1;  // the worker writes such a draw
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

}  // namespace quire
