// The kernels of PagedAttention and what they are launched with.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/paged_attention.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Arrays in the device memory that PagedAttention works in. Counters are zero between launches.
struct AttentionSpace {
  DecodeSequence* sequences = nullptr;  // [max_rows]
  DecodeRange* ranges = nullptr;        // [CTAs of the decode kernel]
  uint32_t* arrivals =
      nullptr;  // [CTAs of the decode kernel] of the ranges that share a head, at its owner
  // A row of a state is D floats of the sum, the top and the sum of weights; a range keeps its own
  // one behind the other, and the one of the head it owns and shares at the end of its stride.
  float* states = nullptr;
  int64_t state_stride = 0;  // floats of a range
  PrefillTile* tiles = nullptr;
  int32_t* num_tiles = nullptr;
  uint32_t* tickets = nullptr;  // taken of the prefill tiles' heads
};

constexpr int32_t StateRowFloats(int32_t head_dim) { return head_dim + 4; }

// The plan of a step as its kernel takes it.
struct PlanArgs {
  const int32_t* query_begin;
  const int32_t* context_len;
  const int32_t* table_row;
  int32_t num_seqs;
  int32_t group;
  int32_t num_kv_heads;
  int32_t window;
  int32_t num_sms;
  int32_t num_ctas;  // of the decode kernel
  int32_t max_rows;
  AttentionSpace space;
};

// A layer's attention as the kernels take it.
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
  float scale_log2;  // of scores whose exponential is taken to base 2
  const int32_t* block_table;
  int64_t table_stride;
  AttentionSpace space;
  // An attention of the step was before this one: the plan, the tables and the K and V of tokens
  // before the step's may be read before the wait (launch.h).
  bool settled;

  // Of a row of a tile: which query, row / G (exact below 2^27), and which head of the group.
  constexpr int32_t QueryOf(int32_t row) const {
    return static_cast<int32_t>(static_cast<uint64_t>(row) * group_inverse >> 31);
  }
  constexpr int32_t InGroup(int32_t row) const { return row - QueryOf(row) * group; }
  // The token behind the last that a row of a tile sees; rows behind the sequence's last see as far
  // as that.
  constexpr int32_t EndFor(const PrefillTile& tile, int32_t row) const {
    const int32_t query = QueryOf(tile.first_row + row), last = tile.num_queries - 1;
    return tile.context - last + (query < last ? query : last);
  }
};

// Of the decode kernel: all that there are run at once.
inline constexpr int kDecodeCtasPerSm = 2;

// Lets a kernel have more than 48 KiB of shared memory, which must be asked for once.
template <auto kKernel, uint32_t kBytes>
void AllowShared() {
  static const cudaError_t asked =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  CUDA_CHECK(asked);
}

void LaunchPlan(const PlanArgs& args, const Device& device);
void LaunchDecode(const PagedAttentionParams& p, const AttentionArgs& args, const Device& device);
// At most `max_tiles` tiles were planned. The second one multiplies by mma.sync.
void LaunchPrefill(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_tiles,
                   const Device& device);
void LaunchPlainPrefill(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_tiles,
                        const Device& device);

}  // namespace quire::cuda
