// The message is laid out head, patches, work, jobs, and then the masks, which the sampler reads
// where they lie, and the bytes that the patches copy.
#include "engine/worker/rank/step_message_writer.h"

#include <algorithm>
#include <cstring>

#include "kernels/ceil_div.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr int64_t kAlignment = 16;
int64_t Aligned(int64_t bytes) { return RoundUp(bytes, kAlignment); }

// Puts the parts of one message into a slot.
class Message {
 public:
  Message(void* slot, int64_t capacity) : base_(static_cast<char*>(slot)), capacity_(capacity) {
    head().bytes = 0;
    used_ = Aligned(sizeof(StepMessage));
  }

  StepMessage& head() { return *reinterpret_cast<StepMessage*>(base_); }
  // Room for `count` values, at the next aligned offset.
  template <typename T>
  uint32_t Take(int64_t count) {
    used_ = Aligned(used_);
    const auto at = static_cast<uint32_t>(used_);
    used_ += count * static_cast<int64_t>(sizeof(T));
    CHECK_LE(used_, capacity_);
    return at;
  }
  template <typename T>
  T* At(uint32_t offset) {
    return reinterpret_cast<T*>(base_ + offset);
  }
  // A patch that writes `count` values to device address `to`.
  template <typename T>
  void AddPatch(T* to, const T* values, int64_t count) {
    if (count == 0) return;
    const uint32_t from = Take<T>(count);
    std::copy_n(values, count, At<T>(from));
    Patch* patches = At<Patch>(head().patches_at);
    patches[head().num_patches++] = {to, from, static_cast<uint32_t>(count * sizeof(T))};
  }
  int64_t used() const { return used_; }

 private:
  char* const base_;
  const int64_t capacity_;
  int64_t used_ = 0;
};

// At most: two patches for a new row, one for a run, one for each block added.
int64_t MaxPatches(const StepPlan& plan) {
  return static_cast<int64_t>(2 * plan.new_rows.size() + plan.token_runs.size() +
                              plan.block_adds.size());
}

// `job`: of the first draw; moves behind the last.
void WritePaddingRow(const RowTables& tables, const RowWork& padding, RowWork* work,
                     SampleJob*& job) {
  *work = {.row = tables.padding_row(), .count = padding.count, .sample = padding.sample};
  for (int32_t i = 0; i < padding.sample; ++i, ++job) {
    *job = tables.Job(tables.padding_row(), 1);
    job->params.temperature = 0;
  }
}

void WriteMask(const StepPlan& plan, const RowMask& mask, const RowTables& tables, Message& message,
               SampleJob& job) {
  if (mask.is_late != 0) {
    const auto index = static_cast<int32_t>(mask.begin);
    job.mask = tables.masks().mask(plan.step, index);
    job.mask_for = tables.masks().word(plan.step, index);
    return;
  }
  const int64_t words = MaskWords(tables.shape().vocab_size);
  CHECK_LE(mask.begin + words, static_cast<int64_t>(plan.mask_words.size()));
  auto* const to = message.At<uint32_t>(message.Take<uint32_t>(words));
  std::copy_n(plan.mask_words.data() + mask.begin, words, to);
  job.mask = to;
}

void WriteWork(const StepPlan& plan, const RowTables& tables, int32_t padding, Message& message) {
  StepMessage& head = message.head();
  RowWork* work = message.At<RowWork>(head.work_at);
  SampleJob* jobs = message.At<SampleJob>(head.jobs_at);
  auto mask = plan.masks.begin();
  for (const RowWork& planned : plan.work) {
    tables.CheckCovered(planned);
    *work++ = planned;
    CHECK(planned.sample >= 0 && planned.sample <= planned.count);
    const int32_t known = planned.start + planned.count - planned.sample + 1;
    for (int32_t i = 0; i < planned.sample; ++i, ++jobs) {
      *jobs = tables.Job(planned.row, known + i);
      if (planned.sample > 1) jobs->drawn = nullptr;  // the next draw reads the guess there
    }
    if (planned.sample == 1 && mask != plan.masks.end() && mask->row == planned.row) {
      WriteMask(plan, *mask++, tables, message, jobs[-1]);
    }
  }
  CHECK(mask == plan.masks.end());
  for (int32_t i = 0; i < padding; ++i) {
    WritePaddingRow(tables, {.count = 1, .sample = 1}, work++, jobs);
  }
}

void WritePatches(const StepPlan& plan, const RowTables& tables, Message& message) {
  for (const NewRow& row : plan.new_rows) {
    CHECK_LE(size_t{row.bias_begin} + row.bias_count, plan.biases.size());
    CHECK_LE(size_t{row.ids_begin} + row.ids_count(), plan.ids.size());
    message.AddPatch(tables.biases(row.row), plan.biases.data() + row.bias_begin, row.bias_count);
    message.AddPatch(tables.ids(row.row), plan.ids.data() + row.ids_begin, row.ids_count());
  }
  for (const TokenRun& run : plan.token_runs) {
    CHECK(run.row >= 0 && run.row < tables.shape().num_rows);
    CHECK(run.start >= 0 && run.start + int64_t{run.count} <= tables.shape().max_model_len);
    CHECK_LE(size_t{run.begin} + run.count, plan.tokens.size());
    message.AddPatch(tables.tokens(run.row) + run.start, plan.tokens.data() + run.begin, run.count);
  }
  for (const BlockAdd& add : plan.block_adds) {
    message.AddPatch(tables.blocks(add.row) + add.index, &add.block, 1);
  }
}

}  // namespace

int64_t StepMessageWriter::MaxBytes(const RowTables::Shape& shape, int32_t max_tokens) {
  const int64_t rows = int64_t{shape.num_rows} + 1;
  const int64_t blocks = CeilDiv<int64_t>(shape.max_model_len, shape.block_size);
  const int64_t patches = rows * (3 + blocks);
  // Each run of values begins aligned.
  const int64_t values =
      rows *
          (int64_t{sizeof(LogitBias)} * RowTables::kMaxBiases + int64_t{4} * RowTables::kMaxIds) +
      int64_t{4} * (MaxPlanTokens(max_tokens, shape.max_model_len) + rows) + patches * kAlignment +
      MaxMasks(shape.num_rows, shape.vocab_size) *
          (int64_t{4} * MaskWords(shape.vocab_size) + kAlignment);
  return Aligned(sizeof(StepMessage)) + Aligned(patches * int64_t{sizeof(Patch)}) +
         Aligned(rows * int64_t{sizeof(RowWork)}) +
         Aligned(shape.max_draws() * int64_t{sizeof(SampleJob)}) + Aligned(values);
}

StepDims StepMessageWriter::Write(const StepPlan& plan, const RowTables& tables, int32_t min_rows,
                                  void* slot, int64_t capacity) {
  const auto rows = static_cast<int32_t>(plan.work.size());
  const int32_t padding = std::max(min_rows - rows, 0);
  Message message(slot, capacity);
  StepMessage& head = message.head();
  head.num_patches = 0;
  head.num_rows = rows + padding;
  head.num_samples = plan.num_samples + padding;
  head.patches_at = message.Take<Patch>(MaxPatches(plan));
  head.work_at = message.Take<RowWork>(head.num_rows);
  head.jobs_at = message.Take<SampleJob>(head.num_samples);
  WriteWork(plan, tables, padding, message);
  WritePatches(plan, tables, message);
  head.bytes = static_cast<uint32_t>(message.used());

  StepDims shape{.num_tokens = plan.num_tokens + padding,
                 .num_seqs = head.num_rows,
                 .num_samples = head.num_samples,
                 .max_query_len = padding > 0 ? 1 : 0};
  for (const RowWork& work : plan.work) {
    shape.max_query_len = std::max(shape.max_query_len, work.count);
  }
  shape.reads_tokens = std::ranges::any_of(plan.readings, [](const StepReading& reading) {
    return reading.kind != StepReading::Kind::kDrawn;
  });
  return shape;
}

StepDims StepMessageWriter::WritePadding(const RowTables& tables, const Padding& padding,
                                         void* slot, int64_t capacity) {
  const int32_t longest = std::min(padding.num_tokens, padding.longest);
  Message message(slot, capacity);
  StepMessage& head = message.head();
  head.num_patches = 0;
  head.num_rows = CeilDiv(padding.num_tokens, longest);
  head.num_samples = padding.draws_all ? padding.num_tokens : head.num_rows;
  head.patches_at = message.Take<Patch>(0);
  head.work_at = message.Take<RowWork>(head.num_rows);
  head.jobs_at = message.Take<SampleJob>(head.num_samples);
  RowWork* work = message.At<RowWork>(head.work_at);
  SampleJob* job = message.At<SampleJob>(head.jobs_at);
  for (int32_t left = padding.num_tokens; left > 0; left -= longest) {
    const int32_t count = std::min(left, longest);
    WritePaddingRow(tables, {.count = count, .sample = padding.draws_all ? count : 1}, work++, job);
  }
  head.bytes = static_cast<uint32_t>(message.used());
  return {.num_tokens = padding.num_tokens,
          .num_seqs = head.num_rows,
          .num_samples = head.num_samples,
          .max_query_len = longest};
}

}  // namespace quire
