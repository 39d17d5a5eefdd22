// PagedAttention: attention over the paged KV cache, planned on the device once a step and run once
// a layer. Sequences with few queries go to the decode kernel, the others to the prefill kernel;
// the rule depends on the sequence alone.
//
// A context is cut into chunks whose length depends on its own length only, and partial results are
// folded in order of position by whoever finishes last: a sequence's bits do not depend on its
// neighbours, on the number of multiprocessors or on the batch. They do depend on the kernel: a
// prompt's tokens have other bits if their sequence has at most 16 / G of them in the step.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

// The largest shapes of any step; they size what attention works in.
struct AttentionLimits {
  int32_t max_rows = 0;
  int32_t max_tokens = 0;
  int64_t max_context = 0;  // tokens of one sequence
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
};

// How prefill multiplies: a warpgroup at a time (wgmma), or a warp at a time (mma.sync), the slower
// one that the other is compared with.
enum class PrefillProducts { kWarpgroup, kWarp };

class PagedAttention {
 public:
  // Device bytes that `space` must have.
  static int64_t SpaceBytes(const AttentionLimits& limits, int num_sms);

  // `space` is zeroed device memory, 256-byte aligned, and outlives this.
  PagedAttention(const AttentionLimits& limits, const Device& device, void* space,
                 PrefillProducts products = PrefillProducts::kWarpgroup);

  // Enqueue. Plan comes once a step, before the step's first Run, with the params of any layer.
  void Plan(const PagedAttentionParams& p);
  void Run(const PagedAttentionParams& p);

 private:
  const AttentionLimits limits_;
  const Device device_;
  void* const space_;
  const PrefillProducts products_;
  int32_t planned_window_ = 0;
  bool ran_ = false;  // since the plan
};

}  // namespace quire::cuda
