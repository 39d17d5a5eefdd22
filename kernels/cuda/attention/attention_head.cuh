// HeadState: one head's softmax state over the tokens seen so far, spread over the threads of a
// decode CTA. Merges the warps' states, folds units in order, and stores states and results.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_piece.cuh"
#include "kernels/cuda/attention/attention_tile.cuh"

namespace quire::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
inline constexpr int kMergeRows = 8;  // of the 16 rows, in shared memory at once

// Thread t has columns t % kLanes * 4 of rows t / kLanes + i * kRows.
template <typename T, typename H>
class HeadState {
  static constexpr int D = H::kDim;

 public:
  // Layout in shared memory: float [kDecodeWarps][kMergeRows][D], then float2
  // [kDecodeWarps][kMergeRows]; for large heads, then each thread's pieces of the sum, for which it
  // has no registers.
  static constexpr uint32_t kTopsAt = kDecodeWarps * kMergeRows * D * 4;
  static constexpr uint32_t kSumsAt = kTopsAt + kDecodeWarps * kMergeRows * 8;
  static constexpr bool kSumsInShared = D > 128;
  static constexpr uint32_t kMergeBytes =
      kSumsAt + (kSumsInShared ? kDecodeRows * D / 4 * sizeof(Piece) : 0);

  __device__ HeadState(const AttentionArgs& a, char* merge)
      : a_(a), merge_(merge), lane_(threadIdx.x % kLanes), row_(threadIdx.x / kLanes) {
    Reset();
  }

  __device__ void Reset() {
    Piece none;
    none.Reset();
#pragma unroll
    for (int i = 0; i < kPieces; ++i) SetSum(i, none);
  }

  // Merges the warps' rows of a unit in the order of the warps. With `fold`, folds the unit into
  // the sum of the units before it; otherwise writes its state to `state`. All threads must call
  // it.
  __device__ void TakeUnit(RunningRows<D>& rows, int num_rows, bool fold, float* state) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half * kMergeRows >= num_rows) break;
      __syncthreads();  // all threads have read the rows put before
      Put(rows, half, num_rows);
      __syncthreads();
#pragma unroll
      for (int i = half * kPieces / 2; i < (half + 1) * kPieces / 2; ++i) {
        if (Row(i) >= num_rows) break;
        const Piece unit = MergeWarps(Row(i) % kMergeRows);
        if (fold) {
          Piece sum = Sum(i);
          sum.Fold(unit);
          SetSum(i, sum);
        } else {
          Write(unit, state, Row(i));
        }
      }
    }
  }

  __device__ void WriteSum(int num_rows, float* state) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Row(i) < num_rows) Write(Sum(i), state, Row(i));
    }
  }

  // Stores the finished head of a sequence.
  __device__ void Store(const DecodeSequence& s, int head) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Row(i) >= s.num_queries * a_.group) continue;
      Sum(i).template Store<T, H>(a_, s.query_begin, head, Row(i), lane_ * 4);
    }
  }

  // Folds `count` states of num_rows rows each, which lie in sequence in shared memory.
  __device__ void FoldShared(const float* states, int num_rows, int count) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Row(i) >= num_rows) break;
      const float* from = states + Row(i) * StateRowFloats(D);
      Piece sum = Sum(i);
#pragma unroll 4
      for (int c = 0; c < count; ++c) {
        const float4 o = *reinterpret_cast<const float4*>(from + lane_ * 4);
        const float2 top = *reinterpret_cast<const float2*>(from + D);
        sum.Fold({{o.x, o.y, o.z, o.w}, top.x, top.y});
        from += num_rows * StateRowFloats(D);
      }
      SetSum(i, sum);
    }
  }

 private:
  static constexpr int kLanes = D / 4;
  static constexpr int kRows = kDecodeThreads / kLanes;
  static constexpr int kPieces = kDecodeRows / kRows;
  static_assert(kRows <= kMergeRows);

  __device__ int Row(int i) const { return row_ + i * kRows; }

  __device__ __forceinline__ Piece& SharedSum(int i) const {
    return reinterpret_cast<Piece*>(merge_ + kSumsAt)[i * kDecodeThreads + threadIdx.x];
  }
  __device__ __forceinline__ Piece Sum(int i) const {
    if constexpr (kSumsInShared) return SharedSum(i);
    return sum_[i];
  }
  __device__ __forceinline__ void SetSum(int i, const Piece& piece) {
    if constexpr (kSumsInShared) {
      SharedSum(i) = piece;
    } else {
      sum_[i] = piece;
    }
  }

  // Puts this warp's rows of one half into shared memory. Vector v of row r lies at place v ^ r, so
  // the eight rows of one store are in different banks.
  __device__ void Put(RunningRows<D>& rows, int half, int num_rows) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = lane / 4;
    const float sum = QuadSum(rows.sum[half]);
    if (half * kMergeRows + row >= num_rows) return;
    if (lane % 4 == 0) {
      reinterpret_cast<float2*>(merge_ + kTopsAt)[warp * kMergeRows + row] =
          make_float2(rows.top[half], sum);
    }
    if constexpr (H::kEightBitKv) {
      PutEightBit(rows, half, merge_ + (warp * kMergeRows + row) * D * 4);
      return;
    }
    char* to = merge_ + (warp * kMergeRows + row) * D * 4 + lane % 2 * 8;
#pragma unroll
    for (int b = 0; b < D / 8; ++b) {
      *reinterpret_cast<float2*>(to + ((b * 2 + lane % 4 / 2) ^ row) * 16) =
          make_float2(rows.o[b][2 * half], rows.o[b][2 * half + 1]);
    }
  }

  // Columns of 8-bit values come in blocks of 16: the even ones, then the odd ones (AddValues). So
  // a lane has four neighbours of each.
  __device__ static void PutEightBit(const RunningRows<D>& rows, int half, char* to) {
    const int lane = threadIdx.x % 32, row = lane / 4;
#pragma unroll
    for (int b = 0; b < D / 16; ++b) {
      const float(&even)[4] = rows.o[2 * b], (&odd)[4] = rows.o[2 * b + 1];
      *reinterpret_cast<float4*>(to + ((b * 4 + lane % 4) ^ row) * 16) =
          make_float4(even[2 * half], odd[2 * half], even[2 * half + 1], odd[2 * half + 1]);
    }
  }

  __device__ Piece MergeWarps(int row) const {
    const float2* tops = reinterpret_cast<const float2*>(merge_ + kTopsAt) + row;
    const char* from = merge_ + row * D * 4 + (lane_ ^ row) * 16;
    Piece unit;
    unit.Reset();
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) unit.top = fmaxf(unit.top, tops[w * kMergeRows].x);
    const float base = FiniteTop(unit.top);
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float2 top = tops[w * kMergeRows];
      const float4 o = *reinterpret_cast<const float4*>(from + w * kMergeRows * D * 4);
      const float scale = Exp2(top.x - base);
      unit.o[0] = __fmaf_rn(scale, o.x, unit.o[0]);
      unit.o[1] = __fmaf_rn(scale, o.y, unit.o[1]);
      unit.o[2] = __fmaf_rn(scale, o.z, unit.o[2]);
      unit.o[3] = __fmaf_rn(scale, o.w, unit.o[3]);
      unit.sum = __fmaf_rn(scale, top.y, unit.sum);
    }
    return unit;
  }

  __device__ void Write(const Piece& piece, float* state, int row) const {
    piece.Write<D>(state + row * StateRowFloats(D), lane_ * 4);
  }

  const AttentionArgs& a_;
  char* const merge_;
  const int lane_, row_;
  Piece sum_[kSumsInShared ? 1 : kPieces];
};

}  // namespace quire::cuda
