// Writes the chosen work down as a plan: everything that the workers' row tables do not hold yet.
// The ids of a row lie in the order that NewRow states.
#include "engine/schedule/plan_writer.h"

#include <algorithm>
#include <span>
#include <vector>

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
  const ReadingParams& reading = sequence.request->reading;
  row.scored_count = append(reading.ids);
  if (reading.of_output()) row.kept = reading.processed ? KeptLogits::kProcessed : KeptLogits::kRaw;
  plan.new_rows.push_back(row);
}

void WriteReadings(const Sequence& sequence, int32_t hidden_size, StepPlan& plan) {
  const RowWork& work = plan.work.back();
  const ReadingParams& params = sequence.request->reading;
  if (!params.of_output() && !params.of_prompt()) return;
  const auto add = [&](StepReading reading) {
    reading.work = static_cast<int32_t>(plan.work.size()) - 1;
    reading.begin = static_cast<uint32_t>(plan.reading_words());
    if (reading.count > 0) plan.readings.push_back(reading);
  };
  const auto score = [&](StepReading::Kind kind, int32_t first, int32_t end, int32_t num_top) {
    const bool drawn = kind == StepReading::Kind::kDrawn;
    const int32_t num_ids = drawn ? static_cast<int32_t>(params.ids.size()) : 0;
    const int32_t count = std::max(0, end - first);
    add({.kind = kind,
         .position = first,
         .count = count,
         .num_top = num_top,
         .num_ids = num_ids,
         .words = static_cast<uint32_t>(count * ScoreWords(num_top, num_ids))});
  };
  const int32_t begin = work.start, end = work.start + work.count;
  const int32_t prompt_end = std::min(end, sequence.num_prompt);
  if (params.prompt_top >= 0) {
    const int32_t last = std::min(end + 1, sequence.num_prompt);
    score(StepReading::Kind::kPrompt, begin + 1, last, params.prompt_top);
  }
  if (params.pooling != Pooling::kNone) {
    const bool mean = params.pooling == Pooling::kMean;
    const int32_t first = mean ? begin : std::max(begin, sequence.num_prompt - 1);
    add({.kind = StepReading::Kind::kPooled,
         .position = first,
         .count = std::max(0, prompt_end - first),
         .words = static_cast<uint32_t>(hidden_size)});
  }
  if (params.of_output() && work.sample) {
    score(StepReading::Kind::kDrawn, end, end + 1, params.num_top);
  }
}

bool WriteMask(Sequence& sequence, StepPlan& plan) {
  if (!sequence.has_mask()) {
    const size_t index = plan.num_late_masks++;
    sequence.masks.late.Add(plan.step, static_cast<int32_t>(index));
    plan.masks.push_back({sequence.row, 1, static_cast<uint32_t>(index)});
    return false;
  }
  const std::span<const uint32_t> mask = sequence.masks.guide->mask();
  plan.masks.push_back({sequence.row, 0, static_cast<uint32_t>(plan.mask_words.size())});
  plan.mask_words.insert(plan.mask_words.end(), mask.begin(), mask.end());
  return true;
}

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
  const bool late = sample && s.guided() && !WriteMask(s, plan);
  plan.work.push_back({s.row, s.planned, choice.count, draws});
  WriteReadings(s, config_.hidden_size, plan);
  plan.num_tokens += choice.count;
  plan.num_samples += draws;
  record.work.push_back({&s, choice.count, draws, late});
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
