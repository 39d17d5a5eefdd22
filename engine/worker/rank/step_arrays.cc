// One allocation on the device and one on the host, cut into arrays.
#include "engine/worker/rank/step_arrays.h"

#include <string>

#include "kernels/ceil_div.h"
#include "kernels/check.h"

namespace quire {
namespace {

// Hands out runs aligned to 256 bytes; with base null it only counts.
class Cutter {
 public:
  explicit Cutter(void* base) : base_(static_cast<char*>(base)) {}
  template <typename T>
  T* Take(int64_t count) {
    constexpr int64_t kAlignment = 256;
    char* at = base_ == nullptr ? nullptr : base_ + used_;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    used_ += RoundUp(bytes, kAlignment);
    return reinterpret_cast<T*>(at);
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

struct DeviceArrays {
  BeginStepParams begin{};
  SampleResult* results = nullptr;
  uint64_t* step = nullptr;
};

DeviceArrays Cut(Cutter& cutter, const RowTables::Shape& shape, int64_t tokens) {
  const int64_t rows = int64_t{shape.num_rows} + 1, draws = shape.max_draws();
  DeviceArrays arrays;
  arrays.step = cutter.Take<uint64_t>(1);
  arrays.begin.token_ids = cutter.Take<int32_t>(tokens);
  arrays.begin.positions = cutter.Take<int32_t>(tokens);
  arrays.begin.slots = cutter.Take<int64_t>(tokens);
  arrays.begin.query_begin = cutter.Take<int32_t>(rows + 1);
  arrays.begin.context_len = cutter.Take<int32_t>(rows);
  arrays.begin.table_row = cutter.Take<int32_t>(rows);
  arrays.begin.logit_rows = cutter.Take<int32_t>(draws);
  arrays.begin.jobs = cutter.Take<SampleJob>(draws);
  arrays.results = cutter.Take<SampleResult>(draws);
  return arrays;
}

}  // namespace

int64_t StepArrays::Bytes(const RowTables::Shape& shape, int32_t max_tokens) {
  Cutter cutter(nullptr);
  Cut(cutter, shape, max_tokens);
  return cutter.used();
}

absl::StatusOr<StepArrays> StepArrays::Create(const RowTables::Shape& shape, int32_t max_tokens,
                                              int32_t slots, Backend& backend) {
  const int64_t draws = shape.max_draws();
  const int64_t message_bytes = StepMessageWriter::MaxBytes(shape, max_tokens);
  const int64_t result_bytes = draws * int64_t{sizeof(SampleResult)};
  StepArrays result;
  result.device_ = backend.Allocate(static_cast<size_t>(Bytes(shape, max_tokens)));
  result.host_ = backend.AllocateHost(static_cast<size_t>(slots * (message_bytes + result_bytes)));
  if (result.device_.empty() || result.host_.empty()) {
    return absl::ResourceExhaustedError("no memory for steps of " + std::to_string(max_tokens) +
                                        " tokens; lower --max-num-batched-tokens");
  }
  Cutter cutter(result.device_.data());
  const DeviceArrays arrays = Cut(cutter, shape, max_tokens);
  result.arrays_ = arrays.begin;
  result.results_ = arrays.results;
  char* host = static_cast<char*>(result.host_.data());
  result.ring_ = {.messages = host,
                  .message_stride = message_bytes,
                  .results = reinterpret_cast<SampleResult*>(host + slots * message_bytes),
                  .result_stride = draws,
                  .slots = slots,
                  .step = arrays.step};
  return result;
}

void* StepArrays::message(uint64_t step) const {
  return static_cast<char*>(ring_.messages) +
         static_cast<int64_t>(step % ring_.slots) * ring_.message_stride;
}

const SampleResult* StepArrays::results(uint64_t step) const {
  return ring_.results + static_cast<int64_t>(step % ring_.slots) * ring_.result_stride;
}

BeginStepParams StepArrays::Begin(const StepDims& shape, const RowTables& tables) const {
  BeginStepParams p = arrays_;
  p.ring = ring_;
  p.num_tokens = shape.num_tokens;
  p.num_seqs = shape.num_seqs;
  p.num_samples = shape.num_samples;
  p.token_table = tables.tokens(0);
  p.token_stride = tables.shape().max_model_len;
  p.block_table = tables.blocks(0);
  p.table_stride = tables.blocks_per_row();
  p.block_size = tables.shape().block_size;
  return p;
}

ModelInput StepArrays::Input(const StepDims& shape, const RowTables& tables) const {
  return {.num_tokens = shape.num_tokens,
          .num_seqs = shape.num_seqs,
          .num_logit_rows = shape.num_samples,
          .max_query_len = shape.max_query_len,
          .token_ids = arrays_.token_ids,
          .positions = arrays_.positions,
          .slots = arrays_.slots,
          .query_begin = arrays_.query_begin,
          .context_len = arrays_.context_len,
          .table_row = arrays_.table_row,
          .block_table = tables.blocks(0),
          .table_stride = tables.blocks_per_row(),
          .logit_rows = arrays_.logit_rows,
          .reads_tokens = shape.reads_tokens};
}

SampleParams StepArrays::Sample(TensorView logits) const {
  return {.logits = logits, .jobs = arrays_.jobs, .results = results_};
}

EndStepParams StepArrays::End(const StepDims& shape) const {
  return {.ring = ring_, .results = results_, .num_samples = shape.num_samples};
}

}  // namespace quire
