// Operations: the mathematics of a forward pass on one rank's device. Each call enqueues one
// operation; its params struct defines the result (ops.h, step_message.h). Pointers in the params
// are device memory and must stay valid until the operation has ended.
//
// A step calls BeginStep, PlanAttention, the layers, Sample and EndStep, in this order.
#pragma once

#include "kernels/ops.h"
#include "kernels/step_message.h"

namespace quire {

class Operations {
 public:
  virtual ~Operations() = default;

  virtual void BeginStep(const BeginStepParams&) = 0;
  // Divides attention's work by the lengths of the contexts. Called before the step's first
  // PagedAttention, once for each window of the step's layers (at most two), with the params of any
  // layer of that window.
  virtual void PlanAttention(const PagedAttentionParams&) = 0;
  virtual void Embed(const EmbedParams&) = 0;
  virtual void RmsNorm(const RmsNormParams&) = 0;
  virtual void MatMul(const MatMulParams&) = 0;
  virtual void RopeStoreKv(const RopeStoreKvParams&) = 0;
  virtual void PagedAttention(const PagedAttentionParams&) = 0;
  virtual void SiluMul(const SiluMulParams&) = 0;
  virtual void GatherRows(const GatherRowsParams&) = 0;
  virtual void Sample(const SampleParams&) = 0;
  virtual void EndStep(const EndStepParams&) = 0;
  // Fills weights of benchmarks; not part of a step.
  virtual void FillUniform(const FillUniformParams&) = 0;
};

}  // namespace quire
