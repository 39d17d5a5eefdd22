// DeviceLimits: the shapes that the kernels of each kind of device compute, as numbers. A model or
// a setting beyond them is refused before anything is loaded (engine/model/capability_check.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kernels/dtype.h"

namespace quire {

inline constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

struct DeviceLimits {
  std::string_view device;   // as --device names it
  std::string_view kernels;  // for people: "CUDA"
  // head_dim, which every model has even, is a multiple of this.
  int32_t head_multiple = 1;
  int32_t max_head_dim = kNoLimit;
  // hidden_size is a multiple of this.
  int32_t width_multiple = 1;
  int32_t max_hidden = kNoLimit;
  int32_t max_vocab = kNoLimit;
  // Sequences of a step, the padding row of the workers' tables included.
  int32_t max_rows = kNoLimit;
  // Tokens of one sequence.
  int32_t max_context = kNoLimit;
  // Tokens of a step times the square of the query heads for each key/value head.
  int64_t max_group_rows = std::numeric_limits<int64_t>::max();
  // Of attention's scores.
  float max_soft_cap = std::numeric_limits<float>::infinity();
  // Elements of a step's activations: tokens times hidden_size or a rank's intermediate_size,
  // padded.
  int64_t max_elements = std::numeric_limits<int64_t>::max();
  // The widest row that becomes 8-bit: hidden_size, a rank's query heads or its share of
  // intermediate_size; and the multiple that each of these is of.
  int32_t max_eight_bit_width = kNoLimit;
  int32_t eight_bit_multiple = 1;
  // Types of weights, and whether a KV cache that is not 8-bit has the type of the weights.
  std::span<const DType> weight_dtypes;
  bool kv_as_weights = false;

  // A rank's intermediate_size is padded to a multiple of this when the weights are loaded
  // (engine/model/model_options.h).
  constexpr int32_t MlpMultiple(bool eight_bit) const {
    return eight_bit ? std::max(width_multiple, eight_bit_multiple) : width_multiple;
  }
};

inline constexpr std::array kAllDTypes = {DType::kF32, DType::kBF16, DType::kF16};
inline constexpr std::array kHalfDTypes = {DType::kBF16, DType::kF16};

// Every width is taken whole vectors first and the rest one by one.
inline constexpr DeviceLimits kCpuLimits = {
    .device = "cpu",
    .kernels = "CPU",
    .weight_dtypes = kAllDTypes,
};

// Each number is the fact of one kernel; a static_assert beside that fact ties the two.
inline constexpr DeviceLimits kCudaLimits = {
    .device = "cuda",
    .kernels = "CUDA",
    // rows/rope_store_kv.cu: two halves of vectors of eight elements, in the lanes of a warp.
    .head_multiple = 16,
    .max_head_dim = 32 * 8,
    // rows/row_layout.h: loads and stores of eight elements, 16 bytes in the narrow types.
    .width_multiple = 8,
    // rows/rms_norm.cu: two vectors of eight elements for each of 1024 threads.
    .max_hidden = 2 * 1024 * 8,
    // sample/sample.cu: a row of logits lies in the shared memory of a cluster of 16 blocks, 192
    // KiB of 4-byte logits in each.
    .max_vocab = 16 * (192 << 10) / 4,
    // attention/attention_plan.cu: running sums over the rows in shared memory.
    .max_rows = 4096 + 1,
    // sample/sample_marks.cuh: 19 bits count how often a sequence has a token.
    .max_context = 1 << 19,
    // attention/attention_kernels.h: rows are divided by the group through a factor of 31 bits.
    .max_group_rows = (int64_t{1} << 31) - 1,
    // attention/attention_tile.cuh: the error of a capped score grows with the cap.
    .max_soft_cap = 1000,
    // rows/each_element.cuh: 31 bits number the vectors of eight elements.
    .max_elements = (int64_t{1} << 31) * 8 - 1,
    // rows/each_element.cuh: four vectors of eight elements for each of 1024 threads.
    .max_eight_bit_width = 4 * 1024 * 8,
    // matmul/skinny_matmul.cu, matmul/lt_product.cc: 16 bytes of a row at a time.
    .eight_bit_multiple = 16,
    // device/dispatch.h, matmul/matmul.cc: the two types that matrix units take.
    .weight_dtypes = kHalfDTypes,
    // attention/paged_attention.cc: queries, keys and values have one type, or K and V are 8-bit.
    .kv_as_weights = true,
};

// The limits of a resolved --device.
constexpr const DeviceLimits& LimitsOf(std::string_view device) {
  return device == kCudaLimits.device ? kCudaLimits : kCpuLimits;
}

}  // namespace quire
