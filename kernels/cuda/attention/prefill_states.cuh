// The states that a prefill CTA's warpgroups keep of their rows where a tile's context is cut into
// spans (prefill_plan.h), and the sums of these states.
#pragma once

#include "kernels/cuda/attention/attention_eight_bit.cuh"
#include "kernels/cuda/attention/attention_piece.cuh"
#include "kernels/cuda/attention/prefill_layout.cuh"

namespace quire::cuda {

// Rows [begin, end) of `count` states that lie `stride` floats apart.
struct StateRows {
  const float* states;
  int stride, count;
  int begin, end;
};

// Folds the states by the threads of a warpgroup; done(row, column, piece) takes each sum. Other
// CTAs have written the states, and the first-level cache is not coherent, so the loads bypass it.
template <int D, typename Done>
__device__ __forceinline__ void FoldStates(const StateRows& of, const Done& done) {
  constexpr int kLanes = D / 4, kAtOnce = 8;
  const int column = threadIdx.x % kLanes * 4;
#pragma unroll 1
  for (int row = of.begin + threadIdx.x % kGroupThreads / kLanes; row < of.end;
       row += kGroupThreads / kLanes) {
    const float* const first = of.states + row * StateRowFloats(D);
    Piece sum;
    sum.Reset();
#pragma unroll 1
    for (int c = 0; c < of.count; c += kAtOnce) {
      // Loads that do not wait for each other. A state past the last changes no bit of the sum.
      Piece next[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        next[i].Reset();
        if (c + i >= of.count) continue;
        const float* const from = first + (c + i) * of.stride;
        const float4 o = __ldcg(reinterpret_cast<const float4*>(from + column));
        const float2 top = __ldcg(reinterpret_cast<const float2*>(from + D));
        next[i] = {{o.x, o.y, o.z, o.w}, top.x, top.y};
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sum.Fold(next[i]);
    }
    done(row, column, sum);
  }
}

// SpanStates: writes the states of a warpgroup's rows of an item.
template <typename T, typename H>
class SpanStates {
  static constexpr int D = H::kDim, kRow = StateRowFloats(D);

 public:
  // `barrier` is a named barrier of the group's threads.
  __device__ SpanStates(const AttentionArgs& a, const PrefillItem& item, int group, int barrier)
      : a_(a),
        tile_(item.tile),
        head_(item.head),
        group_(group),
        barrier_(barrier),
        end_(min(tile_.RowsWith(a.group), (group + 1) * kGroupRows)) {}

  // Takes the state of a span. If the item takes all the tile's spans, it folds them and stores the
  // result with the last one; otherwise FoldSpans does so.
  __device__ __forceinline__ void Take(int span, const RunningRows<D>& rows) const {
    if (end_ <= group_ * kGroupRows) return;
    if (tile_.states == kOwnStates) {
      TakeInOrder(span, rows);
    } else {
      Write(rows, a_.space.span_states + int64_t{tile_.StateOf(head_, span)} * kRow);
    }
  }

 private:
  // Of three states the middle one is this span's. The sum of the spans before it lies on one side,
  // and the new sum goes to the other: lanes of two warps may read a row's top.
  __device__ __forceinline__ void TakeInOrder(int span, const RunningRows<D>& rows) const {
    constexpr int kStride = kPrefillRows * kRow;
    float* const middle =
        a_.space.own_states + (int64_t{blockIdx.x} * kOwnStateCount + 1) * kStride;
    const int to_sum = span % 2 == 0 ? kStride : -kStride;
    Write(rows, span > 0 ? middle : middle - kStride);
    SyncNamed(barrier_, kGroupThreads);
    if (span == 0) return;
    const bool last = span + 1 == tile_.spans;
    FoldStates<D>({middle + to_sum, -to_sum, 2, group_ * kGroupRows, end_},
                  [&](int row, int column, const Piece& sum) {
                    if (last) {
                      sum.Store<T, H>(a_, {tile_.query_begin, head_, ValueScale<H>(a_, head_)},
                                      tile_.first_row + row, column);
                    } else {
                      sum.Write<D>(middle - to_sum + row * kRow, column);
                    }
                  });
    SyncNamed(barrier_, kGroupThreads);  // the next span's state takes this one's place
  }

  // Writes the group's rows, of which a lane has two.
  __device__ __forceinline__ void Write(const RunningRows<D>& rows, float* state) const {
    const int lane = threadIdx.x % 32;
    const int first = group_ * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + 8 * half;
      const float sum = QuadSum(rows.sum[half]);
      if (row >= end_) continue;
      float* const to = state + row * kRow;
      if (lane % 4 == 0) *reinterpret_cast<float2*>(to + D) = make_float2(rows.top[half], sum);
#pragma unroll
      for (int b = 0; b < D / 8; ++b) {
        *reinterpret_cast<float2*>(to + b * 8 + lane % 4 * 2) =
            make_float2(rows.o[b][2 * half], rows.o[b][2 * half + 1]);
      }
    }
  }

  const AttentionArgs& a_;
  const PrefillTile& tile_;
  const int head_, group_, barrier_;
  const int end_;  // one past the group's last row that has a query
};

// Waits until every warpgroup of consumers of every CTA has come here, and makes visible what all
// have written. All CTAs are resident, and none that has come has an item left, so the wait ends.
__device__ __forceinline__ void MeetAllGroups(const AttentionSpace& space, int barrier) {
  SyncNamed(barrier, kGroupThreads);
  if (threadIdx.x % kGroupThreads == 0) {
    uint32_t *const arrivals = space.meeting, *const round = space.meeting + 1;
    const auto read_round = [&] {
      uint32_t value;
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(round) : "memory");
      return value;
    };
    const uint32_t this_round = read_round();
    uint32_t before;  // the counter wraps to zero
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(arrivals), "r"(gridDim.x * kGroups - 1)
                 : "memory");
    if (before + 1 == gridDim.x * kGroups) {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(round), "r"(this_round + 1)
                   : "memory");
    } else {
      while (read_round() == this_round) __nanosleep(64);
    }
  }
  SyncNamed(barrier, kGroupThreads);
}

// Folds the states of all tiles whose spans are items of their own, and stores the results. As many
// items fold a tile and head as have its states: each has a part of the rows.
template <typename T, typename H>
__device__ __forceinline__ void FoldSpans(const AttentionArgs& a, int group, int barrier) {
  constexpr int D = H::kDim;
  MeetAllGroups(a.space, barrier);
  const int items = *a.space.num_tiles * a.num_kv_heads;
#pragma unroll 1
  for (int item = static_cast<int>(blockIdx.x) * kGroups + group; item < items;
       item += static_cast<int>(gridDim.x) * kGroups) {
    const PrefillTile tile = a.space.tiles[item / a.num_kv_heads];
    const int head = item % a.num_kv_heads, rows = tile.RowsWith(a.group);
    if (tile.spans == 1 || tile.states == kOwnStates) continue;
    FoldStates<D>({a.space.span_states + int64_t{tile.StateOf(head, 0)} * StateRowFloats(D),
                   tile.state_rows * StateRowFloats(D), tile.spans,
                   rows * tile.first_span / tile.spans, rows * (tile.first_span + 1) / tile.spans},
                  [&](int row, int column, const Piece& sum) {
                    sum.Store<T, H>(a, {tile.query_begin, head, ValueScale<H>(a, head)},
                                    tile.first_row + row, column);
                  });
  }
}

}  // namespace quire::cuda
