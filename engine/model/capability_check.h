// CheckDeviceCan: whether the kernels of a device compute a model under the settings given, decided
// from numbers alone, before anything is loaded. Without it the first step would end the worker.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/checkpoint/model_config.h"
#include "kernels/device_limits.h"
#include "kernels/dtype.h"

namespace quire {

// The demands of an engine on the kernels of its device, every "auto" resolved.
struct KernelDemand {
  const ModelConfig& model;
  int32_t ranks = 1;
  DType weight_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  int32_t max_num_seqs = 1;
  int32_t max_num_batched_tokens = 1;
  int32_t max_model_len = 0;  // 0: not given; then it follows from the limits too
};

// OK, or INVALID_ARGUMENT with every reason, one a line: the key or flag, its value, what the
// device takes and what to do. The model divides by the ranks. Any thread.
absl::Status CheckDeviceCan(const KernelDemand& demand, const DeviceLimits& limits);

}  // namespace quire
