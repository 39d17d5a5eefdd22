// PagedAttention: attention over the paged KV cache, planned on the device once a step and run once
// a layer. A sequence with at most 16 / G queries in the step (G query heads a key/value head) goes
// to the decode kernel, any other to the prefill kernel.
//
// A context is cut into chunks, or spans, whose length depends on the sequence's own context and
// number of queries, and partial results are folded in the order of positions. So a sequence's bits
// do not depend on other sequences, on the batch, or on the number of multiprocessors. They depend
// on the kernel: a prompt's tokens have other bits in a step that the decode kernel serves. A group
// of more than 16 query heads is always the prefill kernel's.
//
// Read attention_plan.h and prefill_plan.h first (how a step is divided), then attention_plan.cu,
// attention_decode.cu and attention_prefill.cu.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

// The largest shapes of any step; they size attention's device memory.
struct AttentionLimits {
  int32_t max_rows = 0;
  int32_t max_tokens = 0;
  int64_t max_context = 0;  // tokens of one sequence
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  bool capped = false;  // a layer has a soft cap
};

class PagedAttention {
 public:
  // Device bytes of `space`.
  static int64_t SpaceBytes(const AttentionLimits& limits, int num_sms);

  // `space` is zeroed device memory, 256-byte aligned, and must outlive this.
  PagedAttention(const AttentionLimits& limits, const Device& device, void* space);

  // Layers of a model have at most so many different windows.
  static constexpr int kMaxPlans = 2;

  // Both enqueue. Plan comes before the step's first Run, once for each window of the step's
  // layers, with the params of any layer of that window.
  void Plan(const PagedAttentionParams& p);
  void Run(const PagedAttentionParams& p);

 private:
  // The number of the step's plan for `window`; num_plans_: there is none.
  int PlanOf(int32_t window) const;

  const AttentionLimits limits_;
  const Device device_;
  void* const space_;
  std::array<int32_t, kMaxPlans> windows_ = {};  // of the step's plans
  int num_plans_ = 0;
  bool ran_ = false;  // Run was called after the last Plan
};

}  // namespace quire::cuda
