// HeadState: one head's softmax state over the tokens seen so far, spread over the threads of a
// decode CTA. Merges the warps' states, folds units in order, and stores states and results.
#pragma once

#include "kernels/cuda/attention/attention_eight_bit.cuh"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_piece.cuh"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/attention/decode_columns.cuh"

namespace quire::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
inline constexpr int kMergeRows = kTileQueries;  // of the 16 rows, in shared memory at once

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
  template <int kTiles>
  __device__ void TakeUnit(const DecodeColumns<D, kTiles>& columns, int num_rows, bool fold,
                           float* state) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * kMergeRows >= num_rows) break;
      __syncthreads();  // all threads have read the rows put before
      Put(columns, tile, num_rows);
      __syncthreads();
#pragma unroll
      for (int i = tile * kPieces / kQueryTiles; i < (tile + 1) * kPieces / kQueryTiles; ++i) {
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

  // Loads the factor of a head's values early, so that Store does not wait for it.
  __device__ void AskScale(int head) { scale_ = ValueScale<H>(a_, head); }

  // Stores the finished head of a sequence. The last AskScale was for this head.
  __device__ void Store(const DecodeSequence& s, int head) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Row(i) >= s.num_queries * a_.group) continue;
      Sum(i).template Store<T, H>(a_, {s.query_begin, head, scale_}, Row(i), lane_ * 4);
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

  // Puts this warp's rows of one tile into shared memory. Vector v of row r lies at place v ^ r, so
  // that the lanes of a store are in different banks.
  template <int kTiles>
  __device__ void Put(const DecodeColumns<D, kTiles>& columns, int tile, int num_rows) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = QueryRowAt(0, j);
      const float sum = QuerySum(columns.sum[tile][j]);
      if (tile * kMergeRows + row >= num_rows) continue;
      if (lane / 4 == 0) {
        reinterpret_cast<float2*>(merge_ + kTopsAt)[warp * kMergeRows + row] =
            make_float2(columns.top[tile][j], sum);
      }
      char* const to = merge_ + (warp * kMergeRows + row) * D * 4;
#pragma unroll
      for (int b = 0; b < D / 16; ++b) {
        const float first = columns.o[tile][b][j], second = columns.o[tile][b][2 + j];
        if constexpr (H::kEightBitKv) {  // an even column and the odd one behind it (AddValues)
          *reinterpret_cast<float2*>(to + At(b * 16 + lane / 4 * 2, row)) =
              make_float2(first, second);
        } else {
          *reinterpret_cast<float*>(to + At(b * 16 + lane / 4, row)) = first;
          *reinterpret_cast<float*>(to + At(b * 16 + 8 + lane / 4, row)) = second;
        }
      }
    }
  }
  __device__ static int At(int column, int row) { return (column / 4 ^ row) * 16 + column % 4 * 4; }

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
  float scale_ = 1.0f;
  Piece sum_[kSumsInShared ? 1 : kPieces];
};

}  // namespace quire::cuda
