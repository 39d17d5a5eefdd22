// StepMessageWriter: writes the message that the device executes from a plan (kernels/ops.h): what
// a step changes in the row tables, and which rows run.
#pragma once

#include <cstdint>

#include "engine/values/step_plan.h"
#include "engine/worker/rank/row_tables.h"

namespace quire {

// The sizes of a step that its operations need.
struct StepDims {
  int32_t num_tokens = 0;     // T
  int32_t num_seqs = 0;       // S
  int32_t num_samples = 0;    // R
  int32_t max_query_len = 0;  // of any of the S
  bool reads_tokens = false;  // readings of tokens beside the samples follow
};

class StepMessageWriter {
 public:
  // Room for the largest message of a step that computes `max_tokens` tokens, in bytes.
  static int64_t MaxBytes(const RowTables::Shape& shape, int32_t max_tokens);

  // Writes the message of `plan` to `slot`, `capacity` bytes of host memory. `tables` has applied
  // the plan. Adds padding rows until there are `min_rows`. Aborts on a plan that breaks its own
  // rules or overflows the slot.
  static StepDims Write(const StepPlan& plan, const RowTables& tables, int32_t min_rows, void* slot,
                        int64_t capacity);
  // A step without requests: tokens of the padding row.
  struct Padding {
    int32_t num_tokens = 1;
    int32_t longest = 1;    // tokens of a sequence at most; 1: it decodes
    bool draws_all = true;  // one draw for each token, as guesses have; else one for each sequence
  };
  static StepDims WritePadding(const RowTables& tables, const Padding& padding, void* slot,
                               int64_t capacity);
};

}  // namespace quire
