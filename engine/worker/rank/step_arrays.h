// StepArrays: the device memory between a step's message and the model: the flat arrays of the
// largest step, the sampling jobs and results, and the ring of messages and results.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/model_input.h"
#include "engine/worker/rank/row_tables.h"
#include "engine/worker/rank/step_message_writer.h"
#include "kernels/backend.h"

namespace quire {

class StepArrays {
 public:
  // RESOURCE_EXHAUSTED with the size when the device has too little memory. Steps have at most
  // `max_tokens` tokens; `slots` of them are under way at once.
  static absl::StatusOr<StepArrays> Create(const RowTables::Shape& shape, int32_t max_tokens,
                                           int32_t slots, Backend& backend);
  // Device bytes that Create takes, for the memory plan.
  static int64_t Bytes(const RowTables::Shape& shape, int32_t max_tokens);

  // The message slot and the results of the step-th step, counted from 0.
  void* message(uint64_t step) const;
  int64_t message_capacity() const { return ring_.message_stride; }
  const SampleResult* results(uint64_t step) const;

  BeginStepParams Begin(const StepDims& shape, const RowTables& tables) const;
  ModelInput Input(const StepDims& shape, const RowTables& tables) const;
  SampleParams Sample(TensorView logits) const;
  EndStepParams End(const StepDims& shape) const;

 private:
  StepRing ring_;
  BeginStepParams arrays_{};
  SampleResult* results_ = nullptr;  // [max_draws]
  Buffer device_;
  Buffer host_;
};

}  // namespace quire
