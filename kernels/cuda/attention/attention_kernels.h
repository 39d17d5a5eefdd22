// The kernels of PagedAttention and their arguments.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/paged_attention.h"
#include "kernels/cuda/attention/prefill_plan.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Arrays in the device memory of PagedAttention. Counters are zero between launches.
struct AttentionSpace {
  DecodeSequence* sequences = nullptr;  // [max_rows]
  DecodeRange* ranges = nullptr;        // [CTAs of the decode kernel]
  uint32_t* arrivals =
      nullptr;  // [CTAs of the decode kernel] of the ranges that share a head, at its owner
  // A row of a state is D floats of the sum, the top and the sum of weights. A range writes the
  // states of its chunks in sequence, and at the end of its stride the state of the shared head
  // that it owns.
  float* states = nullptr;
  int64_t state_stride = 0;  // floats of a range
  PrefillTile* tiles = nullptr;
  int32_t* num_tiles = nullptr;  // and then whether spans are items of their own
  uint32_t* tickets = nullptr;   // counts the items (tile and head) that prefill CTAs have drawn
  // The prefill kernel has states in the memory of the decode kernel's, which has ended:
  // kOwnStateCount of kPrefillRows rows for each CTA, then those of spans that are items.
  float* own_states = nullptr;
  float* span_states = nullptr;
  uint32_t* meeting = nullptr;  // warpgroups that have ended their items; the meeting's number
  int32_t span_state_rows = 0;
};

// The sizes of a head for which kernels are compiled. Another takes the next larger one: registers
// and shared memory then hold zeros past its end, and memory has rows of its own size.
inline constexpr int32_t kMaxHeadDim = 256;
// Few models have soft caps: kernels of two sizes do for all their heads.
constexpr int32_t CompiledHeadDim(int32_t head_dim, bool capped) {
  if (head_dim == 64 && !capped) return 64;
  return head_dim <= 128 ? 128 : kMaxHeadDim;
}

constexpr int32_t StateRowFloats(int32_t compiled_head_dim) { return compiled_head_dim + 4; }

// The arguments of the plan.
struct PlanArgs {
  const int32_t* query_begin;
  const int32_t* context_len;
  const int32_t* table_row;
  int32_t num_seqs;
  int32_t group;
  int32_t num_kv_heads;
  int32_t window;
  HeadBytes bytes;
  int32_t num_sms;
  int32_t num_ctas;  // of the decode kernel
  int32_t max_rows;
  AttentionSpace space;
};

// The arguments of a layer's attention.
struct AttentionArgs {
  const void* q;
  int64_t q_stride;
  void* out;
  int64_t out_stride;
  const void* kv;
  int64_t block_stride, kv_stride, head_stride;
  int32_t block_shift;  // log2 of a block's tokens
  int32_t num_kv_heads;
  int32_t group;           // G
  uint32_t group_inverse;  // ceil(2^31 / G)
  int32_t window;
  int32_t head_dim;
  // Of the scores, for exponentials to base 2. With cap_log2 > 0 the soft cap scales them instead:
  // cap_log2 * tanh(score * cap_factor * ln(2) / 2).
  float scale_log2;
  float cap_factor;
  float cap_log2;
  const int32_t* block_table;
  int64_t table_stride;
  AttentionSpace space;
  // An attention of the step was enqueued before this one: the kernel may read the plan, the
  // tables, and the K and V of older steps before its wait (rule 2 of launch.h).
  bool settled;
  // [num_kv_heads] each, of an 8-bit pool.
  const float* k_scales;
  const float* v_scales;

  // The query of a tile's row, row / G (exact while row * G < 2^31, which
  // kCudaLimits.max_group_rows guarantees), and its head in the group.
  constexpr int32_t QueryOf(int32_t row) const {
    return static_cast<int32_t>(static_cast<uint64_t>(row) * group_inverse >> 31);
  }
  constexpr int32_t InGroup(int32_t row) const { return row - QueryOf(row) * group; }
  // One past the last token that a row of a tile sees. Rows past the sequence's last query see what
  // that query sees.
  constexpr int32_t EndFor(const PrefillTile& tile, int32_t row) const {
    const int32_t query = QueryOf(tile.first_row + row), last = tile.num_queries - 1;
    return tile.context - last + (query < last ? query : last);
  }
};

// Head: a compiled size, and whether its K and V are 8-bit. Rows in memory have kDim elements if
// kWhole, else a.head_dim.
template <int D, bool kWhole, bool kEightBit = false>
struct Head {
  static constexpr int kDim = D;
  static constexpr bool kEightBitKv = kEightBit;
  static constexpr int32_t Row(const AttentionArgs& a) { return kWhole ? D : a.head_dim; }
  // Whether element `at` of the kDim lies within the row.
  static constexpr bool Has(const AttentionArgs& a, int32_t at) {
    return kWhole || at < a.head_dim;
  }
};

// fn(Head{}, std::bool_constant<capped>{}) for a head of this size, with kDim = CompiledHeadDim.
template <bool kEightBit, typename Fn>
void DispatchSize(int32_t head_dim, bool capped, Fn&& fn) {
  if (capped && head_dim <= 128) return fn(Head<128, false, kEightBit>{}, std::true_type{});
  if (capped) return fn(Head<kMaxHeadDim, false, kEightBit>{}, std::true_type{});
  if (head_dim == 64) return fn(Head<64, true, kEightBit>{}, std::false_type{});
  if (head_dim == 128) return fn(Head<128, true, kEightBit>{}, std::false_type{});
  if (head_dim < 128) return fn(Head<128, false, kEightBit>{}, std::false_type{});
  fn(Head<kMaxHeadDim, false, kEightBit>{}, std::false_type{});
}
template <typename Fn>
void DispatchHead(const KvLayerView& kv, bool capped, Fn&& fn) {
  if (kv.dtype == DType::kE4M3) return DispatchSize<true>(kv.head_dim, capped, fn);
  DispatchSize<false>(kv.head_dim, capped, fn);
}

// CTAs of the decode kernel a multiprocessor, all resident at once.
constexpr int DecodeCtasPerSm(int32_t head_dim) { return head_dim > 128 ? 1 : 2; }

// Loads a kernel, and allows it more than 48 KiB of shared memory; the runtime wants to be asked
// once.
template <auto kKernel, uint32_t kBytes>
void AllowShared() {
  static const cudaError_t asked =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  CUDA_CHECK(asked);
  // A setting alone need not load it.
  static cudaFuncAttributes facts;
  static const cudaError_t loaded = cudaFuncGetAttributes(&facts, kKernel);
  CUDA_CHECK(loaded);
}

void LaunchPlan(const PlanArgs& args, const Device& device);
void LaunchDecode(const PagedAttentionParams& p, const AttentionArgs& args, const Device& device);
// The plan has at most `max_tiles` tiles.
void LaunchPrefill(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_tiles,
                   const Device& device);

}  // namespace quire::cuda
