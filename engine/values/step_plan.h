// StepPlan: the scheduler's decisions for one step, as plain data. The scheduler is the only writer
// of plans; workers execute them and decide nothing, so ranks cannot diverge. A plan speaks of rows
// (stable slots of the workers' row tables), blocks and tokens, never of requests.
//
// Vectors are reused from step to step and keep their capacity: a steady step allocates nothing.
// Every element is trivially copyable so that a shared-memory transport can flatten the vectors.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/values/step_reading.h"
#include "engine/values/step_watch.h"
#include "kernels/step_message.h"

namespace quire {

// A sequence takes over a row. Sent before the row's first work; resets the row's table entries.
struct NewRow {
  int32_t row = 0;
  int32_t num_prompt = 0;  // penalties count tokens from here on as output
  SampleRow sampling;
  uint32_t bias_begin = 0;  // [begin, begin + count) of StepPlan::biases
  uint32_t bias_count = 0;
  // From ids_begin of StepPlan::ids on lie, one list after the other: EOS and stop ids, banned
  // while num_known < min_known; bad words; allowed tokens; DRY's breakers (SampleJob);
  // Then the ids that each drawn token's score has.
  uint32_t ids_begin = 0;
  uint32_t banned_count = 0;
  int32_t min_known = 0;
  uint32_t bad_word_count = 0;
  uint32_t allowed_count = 0;
  uint32_t breaker_count = 0;
  uint32_t scored_count = 0;
  KeptLogits kept = KeptLogits::kNone;

  uint32_t ids_count() const {
    return banned_count + bad_word_count + allowed_count + breaker_count + scored_count;
  }
};

// Known tokens of a row, to be written into its token table before the forward pass: a prefill
// chunk (or, after a preemption, prompt and output alike).
struct TokenRun {
  int32_t row = 0;
  int32_t start = 0;   // position of the first token
  uint32_t begin = 0;  // [begin, begin + count) of StepPlan::tokens
  uint32_t count = 0;
};

// Position `index` of the row's block table becomes `block`.
struct BlockAdd {
  int32_t row = 0;
  int32_t index = 0;
  int32_t block = 0;
};

// The mask of the one draw that the row's work of this plan makes (SampleJob). In the order of the
// works.
struct RowMask {
  int32_t row = 0;
  uint32_t is_late = 0;  // 1: it comes to entry `begin` of the mask board (mask_board.h). 0: it is
                         // MaskWords of the vocabulary from `begin` of StepPlan::mask_words on
  uint32_t begin = 0;
};

// Block `to` becomes a copy of block `from`, after all earlier steps and before this step's work.
// No plan writes `from` meanwhile.
struct BlockClone {
  int32_t from = 0;
  int32_t to = 0;
};

// Tokens that the runs of one plan hold at most. Rows learn all their tokens, those whose KV was
// found as well (penalties and the sampler read them), so the budget of a step does not bound them:
// sequences that found much are spread over steps. One of any length can always begin.
inline constexpr int32_t MaxFoundTokens(int32_t max_model_len) {
  constexpr int32_t kEnough = 65536;  // so that short contexts are not spread at all
  return max_model_len > kEnough ? max_model_len : kEnough;
}
inline constexpr int32_t MaxPlanTokens(int32_t max_num_batched_tokens, int32_t max_model_len) {
  return max_num_batched_tokens + MaxFoundTokens(max_model_len);
}

// Masks that one plan carries at most: 4 MiB, and at least one. Rows whose masks are there beyond
// that wait for the next plan; masks that come late are none of the plan's.
inline constexpr int32_t MaxMasks(int32_t max_num_seqs, int32_t vocab_size) {
  constexpr int64_t kEnoughWords = int64_t{1} << 20;
  const int64_t words = MaskWords(vocab_size);
  const int64_t masks = words > 0 && words < kEnoughWords ? kEnoughWords / words : 1;
  return masks < max_num_seqs ? static_cast<int32_t>(masks) : max_num_seqs;
}

struct StepPlan {
  uint64_t step = 0;        // consecutive from 1
  int32_t num_tokens = 0;   // sum of work[i].count
  int32_t num_samples = 0;  // sum of work[i].sample
  int32_t num_found = 0;    // tokens of the runs whose KV was found, not computed; stays here
  int32_t num_decoded = 0;  // of the runs, drawn before or guessed, for rows that decode; likewise
  int32_t num_late_masks = 0;  // of `masks`; likewise
  int32_t graph_size = 0;  // rows of the captured step that the plan runs as, padded to that many;
                           // 0: it runs uncaptured
  bool shutdown = false;   // the last plan: workers finish and exit
  StepWatch watch;
  std::vector<NewRow> new_rows;
  std::vector<TokenRun> token_runs;
  std::vector<BlockAdd> block_adds;
  std::vector<BlockClone> block_clones;  // at most one for each new row
  std::vector<RowWork> work;
  std::vector<int32_t> tokens;
  std::vector<LogitBias> biases;
  std::vector<int32_t> ids;
  std::vector<RowMask> masks;
  std::vector<uint32_t> mask_words;
  std::vector<StepReading> readings;

  // Of the result.
  size_t reading_words() const {
    return readings.empty() ? 0 : size_t{readings.back().begin} + readings.back().words;
  }

  void Clear() {
    step = 0;
    num_tokens = num_samples = num_found = num_decoded = num_late_masks = graph_size = 0;
    shutdown = false;
    watch = {};
    new_rows.clear();
    token_runs.clear();
    block_adds.clear();
    block_clones.clear();
    work.clear();
    tokens.clear();
    biases.clear();
    ids.clear();
    masks.clear();
    mask_words.clear();
    readings.clear();
  }
};

}  // namespace quire
