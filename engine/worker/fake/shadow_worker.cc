// Hash chains in place of keys and values.
#include "engine/worker/fake/shadow_worker.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>

#include "kernels/check.h"

namespace quire {
namespace {

uint64_t Mix(uint64_t x) { return XXH3_64bits(&x, sizeof x); }

// The upper bits of a hash as a number in [0, 1).
double Fraction(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

}  // namespace

uint64_t ShadowModel::Extend(uint64_t prefix, int32_t token) {
  return XXH3_64bits_withSeed(&token, sizeof token, prefix);
}

SampleResult ShadowModel::Next(uint64_t prefix, uint64_t seed, std::span<const int32_t> banned,
                               std::span<const uint32_t> mask) const {
  const auto allowed = [banned, mask](int32_t token) {
    const bool barred = !mask.empty() && (mask[token / 32] >> (token % 32) & 1) == 0;
    return !barred && std::find(banned.begin(), banned.end(), token) == banned.end();
  };
  CHECK_LT(banned.size(), static_cast<size_t>(vocab_size));
  uint64_t draw = Mix(prefix ^ Mix(seed));
  SampleResult result;
  result.logprob = -static_cast<float>(Fraction(draw));
  if (Fraction(Mix(draw + 1)) < nan_probability) {
    result.nonfinite = 1;
    return result;
  }
  int32_t possible = 0;
  while (!mask.empty() && possible < vocab_size && !allowed(possible)) ++possible;
  if (possible == vocab_size) {
    result.nonfinite = SampleResult::kNoToken;
    return result;
  }
  result.token = eos_token;
  if (Fraction(Mix(draw + 2)) < eos_probability && allowed(eos_token)) return result;
  result.token = usual_token;
  if (Fraction(Mix(draw + 4)) < usual_probability && allowed(usual_token)) return result;
  do {
    draw = Mix(draw + 3);
    result.token = static_cast<int32_t>(draw % static_cast<uint64_t>(vocab_size));
  } while (!allowed(result.token));
  return result;
}

ShadowWorker::ShadowWorker(const ShadowWorkerOptions& options)
    : options_(options),
      slots_(static_cast<size_t>(options.num_blocks) * options.block_size),
      rows_(options.max_num_seqs) {}

void ShadowWorker::Run(const StepPlan& plan, StepResult& result) {
  result.step = plan.step;
  result.checksum = 0;
  result.started_ns = result.enqueued_ns = result.finished_ns = 0;
  result.parts.clear();
  result.samples.clear();
  Require(plan.step == last_step_ + 1, "step number is not the next one", -1);
  last_step_ = plan.step;
  CheckTotals(plan);
  for (const NewRow& row : plan.new_rows) ApplyNewRow(plan, row);
  for (const TokenRun& run : plan.token_runs) ApplyTokenRun(plan, run);
  for (const BlockAdd& add : plan.block_adds) ApplyBlockAdd(add);
  for (const BlockClone& clone : plan.block_clones) ApplyBlockClone(plan, clone);
  size_t masks = 0;
  for (const RowWork& work : plan.work) RunWork(work, MaskOf(plan, work, &masks), result);
  Require(masks == plan.masks.size(), "a mask without a draw", -1);
}

// The mask of the work's draw, `masks` of the plan's having been used before.
ShadowWorker::Mask ShadowWorker::MaskOf(const StepPlan& plan, const RowWork& work, size_t* masks) {
  if (*masks == plan.masks.size() || plan.masks[*masks].row != work.row) return {};
  const RowMask& mask = plan.masks[(*masks)++];
  if (!Require(work.sample == 1, "a mask without a draw", work.row)) return {};
  const auto words = static_cast<size_t>(MaskWords(options_.model.vocab_size));
  if (mask.is_late != 0) {
    const auto index = static_cast<int32_t>(mask.begin);
    const std::atomic_ref word(*masks_.word(plan.step, index));
    return {.words = {masks_.mask(plan.step, index), words},
            .is_late = true,
            .word = word.load(std::memory_order_acquire)};
  }
  if (!Require(mask.begin + words <= plan.mask_words.size(), "a mask is too short", work.row)) {
    return {};
  }
  return {.words = std::span(plan.mask_words).subspan(mask.begin, words)};
}

// Whether the work draws nothing, because its late mask is missing. Works of the row in later steps
// stand on that draw. They draw nothing either, until the scheduler, which then knows of it, plans
// the draw again.
bool ShadowWorker::LacksMask(Row& row, const RowWork& work, const Mask& mask) {
  const auto known = static_cast<int32_t>(row.tokens.size());
  const auto length = static_cast<uint32_t>(work.start + work.count);
  if (row.undrawn && work.start == known) {
    Require(mask.is_late && mask.word != length, "a mask behind a draw that was not made",
            work.row);
    return true;
  }
  row.undrawn = mask.is_late && mask.word != length;
  const bool known_word = mask.word == kMaskAwaited || mask.word == kMaskWithheld;
  Require(!row.undrawn || known_word, "the mask of another position", work.row);
  return row.undrawn;
}

bool ShadowWorker::Require(bool ok, const char* what, int32_t row) {
  if (ok || !violation_.empty()) return violation_.empty();
  violation_ = std::string(what) + " (step " + std::to_string(last_step_) + ", row " +
               std::to_string(row) + ")";
  if (options_.abort_on_violation) {
    std::fprintf(stderr, "shadow worker: %s\n", violation_.c_str());
    std::abort();
  }
  return false;
}

bool ShadowWorker::RowInUse(int32_t row) {
  return Require(row >= 0 && row < options_.max_num_seqs, "row out of range", row) &&
         Require(rows_[row].in_use, "row without an owner", row);
}

void ShadowWorker::CheckTotals(const StepPlan& plan) {
  int32_t num_tokens = 0;
  int32_t num_samples = 0;
  for (const RowWork& work : plan.work) {
    num_tokens += work.count;
    num_samples += work.sample;
  }
  Require(num_tokens == plan.num_tokens, "num_tokens is not the sum of the work", -1);
  Require(num_samples == plan.num_samples, "num_samples is not the sum of the work", -1);
  Require(num_tokens <= options_.max_num_batched_tokens, "plan over the token budget", -1);
}

void ShadowWorker::ApplyNewRow(const StepPlan& plan, const NewRow& new_row) {
  const bool in_range = new_row.row >= 0 && new_row.row < options_.max_num_seqs;
  if (!Require(in_range, "new row out of range", new_row.row)) return;
  const size_t banned_end = size_t{new_row.ids_begin} + new_row.banned_count;
  const size_t ids_end = size_t{new_row.ids_begin} + new_row.ids_count();
  const size_t bias_end = size_t{new_row.bias_begin} + new_row.bias_count;
  const bool spans = ids_end <= plan.ids.size() && bias_end <= plan.biases.size();
  if (!Require(spans, "banned tokens, other ids or biases out of range", new_row.row)) return;
  Row& row = rows_[new_row.row];
  row.in_use = true;
  row.params = new_row;
  row.banned.assign(plan.ids.begin() + new_row.ids_begin, plan.ids.begin() + banned_end);
  row.tokens.clear();
  row.prefix.assign(1, ShadowModel::kNoTokens);
  row.blocks.clear();
  row.computed = -1;
  row.broken = row.undrawn = false;
  row.last_step = 0;
}

void ShadowWorker::ApplyTokenRun(const StepPlan& plan, const TokenRun& run) {
  if (!RowInUse(run.row)) return;
  Row& row = rows_[run.row];
  const size_t end = size_t{run.begin} + run.count;
  const bool fits = end <= plan.tokens.size() &&
                    row.tokens.size() + run.count <= static_cast<size_t>(options_.max_model_len);
  const bool next = run.count > 0 && static_cast<size_t>(run.start) == row.tokens.size();
  if (!Require(fits, "token run out of range", run.row)) return;
  if (!Require(next, "token run does not continue the row's tokens", run.row)) return;
  for (size_t i = run.begin; i < end; ++i) AppendToken(row, plan.tokens[i]);
}

void ShadowWorker::ApplyBlockAdd(const BlockAdd& add) {
  if (!RowInUse(add.row)) return;
  Row& row = rows_[add.row];
  const bool valid = add.block > 0 && add.block < options_.num_blocks;
  const bool next = static_cast<size_t>(add.index) == row.blocks.size();
  if (!Require(valid, "null block or block out of range in a table", add.row)) return;
  if (!Require(next, "block table is not extended at its end", add.row)) return;
  row.blocks.push_back(add.block);
}

void ShadowWorker::ApplyBlockClone(const StepPlan& plan, const BlockClone& clone) {
  const auto valid = [this](int32_t block) { return block > 0 && block < options_.num_blocks; };
  const bool in_range = valid(clone.from) && valid(clone.to) && clone.from != clone.to;
  if (!Require(in_range, "null block or block out of range in a clone", -1)) return;
  const auto wanted = [&clone](const BlockAdd& add) { return add.block == clone.to; };
  const bool added = std::ranges::any_of(plan.block_adds, wanted);
  if (!Require(added, "clone into a block that no row was just given", -1)) return;
  std::ranges::copy(Block(clone.from), Block(clone.to).begin());
}

void ShadowWorker::CheckWork(const RowWork& work) {
  Row& row = rows_[work.row];
  const int32_t end = work.start + work.count;
  const int32_t known = static_cast<int32_t>(row.tokens.size());
  const int32_t capacity = static_cast<int32_t>(row.blocks.size()) * options_.block_size;
  Require(row.last_step != last_step_, "row twice in a step", work.row);
  Require(work.count > 0, "empty work", work.row);
  // Earlier sequences computed the KV before the first work: the check of the slots follows.
  const bool next = row.computed < 0 ? work.start >= 0 : work.start == row.computed;
  Require(next, "work does not continue the row's computed tokens", work.row);
  Require(end <= known, "work on tokens that are not known", work.row);
  Require(end <= capacity, "work beyond the row's blocks", work.row);
  Require(work.sample >= 0 && work.sample <= work.count, "more draws than positions", work.row);
  Require(!work.sample || end == known, "sample in the middle of the known tokens", work.row);
  Require(!work.sample || known < options_.max_model_len, "sample beyond the context", work.row);
}

// The KV of a token that is not known is none.
void ShadowWorker::RunUndrawn(Row& row, const RowWork& work) {
  const auto known = static_cast<int32_t>(row.tokens.size());
  const auto capacity = static_cast<int32_t>(row.blocks.size()) * options_.block_size;
  row.last_step = last_step_;
  if (!Require(work.count == 1 && work.start < capacity, "work of a draw without mask", work.row)) {
    return;
  }
  Slot(row, work.start) = work.start < known ? row.prefix[work.start + 1] : ShadowModel::kNoTokens;
}

void ShadowWorker::RunWork(const RowWork& work, const Mask& mask, StepResult& result) {
  if (RowInUse(work.row) && violation_.empty() && LacksMask(rows_[work.row], work, mask)) {
    RunUndrawn(rows_[work.row], work);
    return result.samples.push_back({work.row, {.nonfinite = SampleResult::kNoMask}});
  }
  if (RowInUse(work.row)) CheckWork(work);
  if (violation_.empty()) {
    Row& row = rows_[work.row];
    const int32_t end = work.start + work.count;
    if (row.computed < 0) row.finite = work.start;
    for (int32_t position = 0; position < work.start && !row.broken; ++position) {
      const bool own = Slot(row, position) == row.prefix[position + 1];
      if (!Require(own, "a KV slot holds something else than the row's prefix", work.row)) break;
    }
    for (int32_t position = work.start; position < end; ++position) {
      Slot(row, position) = row.prefix[position + 1];
    }
    row.computed = end;
    row.last_step = last_step_;
    if (work.sample) return Draw(row, work, mask, result);
  }
  result.samples.insert(result.samples.end(), work.sample, {.row = work.row, .result = {}});
}

// Of several draws, the row keeps the guesses that are right. The scheduler sends the draw behind
// them.
void ShadowWorker::Draw(Row& row, const RowWork& work, const Mask& mask, StepResult& result) {
  const int32_t first =
      work.start + work.count - work.sample + 1;  // known tokens of the first draw
  bool good = true;
  for (int32_t i = 0; i < work.sample; ++i) {
    const int32_t known = first + i;
    const SampleResult drawn = Sample(row, known, mask.words);
    result.samples.push_back({work.row, drawn});
    if (!good) continue;
    row.computed = known;
    if (drawn.nonfinite) Spoil(row);
    row.finite = known;
    good = !drawn.nonfinite && i + 1 < work.sample && row.tokens[known] == drawn.token;
  }
  if (work.sample == 1) return AppendToken(row, result.samples.back().result.token);
  row.tokens.resize(row.computed);
  row.prefix.resize(row.computed + 1);
}

// A later reader of these slots reports them.
void ShadowWorker::Spoil(Row& row) {
  row.broken = true;
  for (int32_t position = row.finite; position < row.computed; ++position) {
    Slot(row, position) ^= ShadowModel::kNoTokens;
  }
}

// The token behind the first `known`.
SampleResult ShadowWorker::Sample(const Row& row, int32_t known,
                                  std::span<const uint32_t> mask) const {
  const bool ban = known < row.params.min_known;
  const std::span<const int32_t> banned =
      ban ? std::span<const int32_t>(row.banned) : std::span<const int32_t>();
  return options_.model.Next(row.prefix[known], row.params.sampling.seed, banned, mask);
}

std::span<uint64_t> ShadowWorker::Block(int32_t block) {
  CHECK(block > 0 && block < options_.num_blocks);
  return std::span(slots_).subspan(static_cast<size_t>(block) * options_.block_size,
                                   options_.block_size);
}

uint64_t& ShadowWorker::Slot(const Row& row, int32_t position) {
  const size_t block = row.blocks[position / options_.block_size];
  return slots_[block * options_.block_size + position % options_.block_size];
}

void ShadowWorker::AppendToken(Row& row, int32_t token) {
  row.tokens.push_back(token);
  row.prefix.push_back(ShadowModel::Extend(row.prefix.back(), token));
}

}  // namespace quire
