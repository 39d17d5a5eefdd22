// SpanStates: the states that a warpgroup of a prefill CTA keeps of its rows where a tile's context
// is cut into spans (prefill_plan.h), and their sum.
#pragma once

#include "kernels/cuda/attention/attention_piece.cuh"
#include "kernels/cuda/attention/prefill_layout.cuh"

namespace quire::cuda {

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
        end_(min(tile_.num_queries * a.group - tile_.first_row, (group + 1) * kGroupRows)) {}

  // Takes the state of a span. The tile's result is stored with the last of its spans.
  __device__ __forceinline__ void Take(int span, const RunningRows<D>& rows) const {
    if (end_ <= group_ * kGroupRows) return;
    if (tile_.states == kOwnStates) {
      TakeInOrder(span, rows);
    } else {
      TakeApart(span, rows);
    }
  }

 private:
  static constexpr int kLanes = D / 4, kRowsAtOnce = kGroupThreads / kLanes;

  // Another CTA may hold any other span; the one that arrives last folds all.
  __device__ __forceinline__ void TakeApart(int span, const RunningRows<D>& rows) const {
    float* const states = a_.space.span_states + int64_t{tile_.StateOf(head_, 0)} * kRow;
    const int stride = tile_.state_rows * kRow;
    Write(rows, states + span * stride);
    SyncNamed(barrier_, kGroupThreads);
    const bool arrives_last = threadIdx.x % kGroupThreads == 0 && ArrivesLast();
    if (!SyncNamedAny(barrier_, kGroupThreads, arrives_last)) return;
    Fold(states, stride, tile_.spans, nullptr);
  }

  // The first of two states is the sum of the spans before this one.
  __device__ __forceinline__ void TakeInOrder(int span, const RunningRows<D>& rows) const {
    constexpr int kStride = kPrefillRows * kRow;
    float* const states = a_.space.own_states + int64_t{blockIdx.x} * 2 * kStride;
    Write(rows, states + (span > 0 ? kStride : 0));
    SyncNamed(barrier_, kGroupThreads);
    if (span > 0) Fold(states, kStride, 2, span + 1 < tile_.spans ? states : nullptr);
    SyncNamed(barrier_, kGroupThreads);  // the next span's state may take this one's place
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

  // True for the last of the spans that arrives: it can read the states of all. The counter wraps
  // to zero.
  __device__ __forceinline__ bool ArrivesLast() const {
    uint32_t* const counter =
        a_.space.span_arrivals + tile_.StateOf(head_, 0) / kLeastStateRows * kGroups + group_;
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(tile_.spans - 1)
                 : "memory");
    return before + 1 == static_cast<uint32_t>(tile_.spans);
  }

  // Folds `count` states, which lie `stride` floats apart, into `sum`, or stores the result. The
  // first-level cache is not coherent, so the loads bypass it.
  __device__ __forceinline__ void Fold(const float* states, int stride, int count,
                                       float* sum) const {
    const int column = threadIdx.x % kLanes * 4;
#pragma unroll 1
    for (int row = group_ * kGroupRows + threadIdx.x % kGroupThreads / kLanes; row < end_;
         row += kRowsAtOnce) {
      Piece piece;
      piece.Reset();
      const float* from = states + row * kRow;
#pragma unroll 8
      for (int c = 0; c < count; ++c, from += stride) {
        const float4 o = __ldcg(reinterpret_cast<const float4*>(from + column));
        const float2 top = __ldcg(reinterpret_cast<const float2*>(from + D));
        piece.Fold({{o.x, o.y, o.z, o.w}, top.x, top.y});
      }
      if (sum == nullptr) {
        piece.Store<T, H>(a_, tile_.query_begin, head_, tile_.first_row + row, column);
      } else {
        piece.Write<D>(sum + row * kRow, column);
      }
    }
  }

  const AttentionArgs& a_;
  const PrefillTile& tile_;
  const int head_, group_, barrier_;
  const int end_;  // one past the group's last row that has a query
};

}  // namespace quire::cuda
