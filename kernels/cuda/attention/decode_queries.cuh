// The queries of a decode CTA's head as matrix fragments, in the type of the products. Rows past
// the sequence's last are zero. Large heads leave no registers for fragments: their queries lie in
// shared memory, a copy for each warp.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention_eight_bit.cuh"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/attention/decode_columns.cuh"
#include "kernels/cuda/attention/query_fragments.cuh"

namespace quire::cuda {

// A row of a head's queries.
template <typename T, typename H>
struct QueryRow {
  bool valid;
  const T* q;

  __device__ QueryRow(const AttentionArgs& a, const DecodeSequence& s, int head, int row)
      : valid(row < s.num_queries * a.group),
        q(static_cast<const T*>(a.q) + (s.query_begin + a.QueryOf(row)) * a.q_stride +
          (head * a.group + a.InGroup(row)) * H::Row(a)) {}
  template <typename Vector>
  __device__ __forceinline__ Vector Read(const AttentionArgs& a, int column) const {
    return valid && H::Has(a, column) ? *reinterpret_cast<const Vector*>(q + column) : Vector{};
  }
};

// Queries: of K and V in the queries' own type.
template <typename T, typename H>
class Queries : public QueryFragments<H::kDim> {
  static constexpr int D = H::kDim;
  using Base = QueryFragments<D>;
  using Base::kInShared;

 public:
  using Base::Base;

  __device__ void Load(const AttentionArgs& a, const DecodeSequence& s, int head) {
    const int lane = threadIdx.x % 32;
    if constexpr (kInShared) {
      __syncwarp();  // all lanes have read the head before
      for (int at = lane; at < kDecodeRows * (D / 8); at += 32) {
        const int row = at / (D / 8), vector = at % (D / 8);
        StoreVector(shared_ + SwizzledOffset<D * 2>(row, vector),
                    QueryRow<T, H>(a, s, head, row).template Read<uint4>(a, vector * 8));
      }
      __syncwarp();
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const QueryRow<T, H> row(a, s, head, lane / 4 + 8 * half);
#pragma unroll
        for (int i = 0; i < D / 8; ++i) {
          fragment_[i / 2][half + i % 2 * 2] = row.template Read<uint32_t>(a, i * 8 + lane % 4 * 2);
        }
      }
    }
  }

  // The factors of the scores of the lane's queries (decode_columns.cuh): `common` for all.
  __device__ __forceinline__ RowFactors Factors(int, float common) const {
    return {{common, common}};
  }

 private:
  using Base::fragment_;
  using Base::shared_;
};

// EightBitQueries: of 8-bit K and V. An ldmatrix of keys gives a lane four neighbouring columns, of
// which a product takes two as its columns 2 (t % 4) and two as those 8 further on. So the columns
// of a query are in that order too: of each 16, {0, 1, 4, 5, 8, 9, 12, 13}, then the others.
template <typename T, typename H>
class EightBitQueries : public QueryFragments<H::kDim> {
  static constexpr int D = H::kDim;
  using Base = QueryFragments<D>;
  using Base::kInShared;

 public:
  using Base::Base;

  __device__ void Load(const AttentionArgs& a, const DecodeSequence& s, int head) {
    const float k_scale = a.k_scales[head];
    if constexpr (kInShared) {
      LoadShared(a, s, head, k_scale);
    } else {
      LoadRegisters(a, s, head, k_scale);
    }
  }

  __device__ __forceinline__ RowFactors Factors(int tile, float common) const {
    return {{common * factor_[tile][0], common * factor_[tile][1]}};
  }

 private:
  // Four lanes have a row, and each of them four columns of each 16.
  __device__ void LoadRegisters(const AttentionArgs& a, const DecodeSequence& s, int head,
                                float k_scale) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < kQueryTiles; ++half) {
      const QueryRow<T, H> row(a, s, head, lane / 4 + kTileQueries * half);
      float largest = 0.0f;
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        const uint2 four = row.template Read<uint2>(a, i * 16 + lane % 4 * 4);
        largest = Larger<T>(Larger<T>(largest, four.x), four.y);
        fragment_[i][half] = four.x;
        fragment_[i][half + 2] = four.y;
      }
      const QueryScale scale(QuadMax(largest));
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {
        fragment_[i][half] = scale.Scaled<T>(fragment_[i][half]);
        fragment_[i][half + 2] = scale.Scaled<T>(fragment_[i][half + 2]);
      }
      const float factor = scale.Factor(k_scale);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factor_[half][i] = __shfl_sync(0xffffffffu, factor, QueryRowAt(0, i) * 4);
      }
    }
  }

  // kRowLanes lanes have a row, and each of them 16 columns.
  __device__ void LoadShared(const AttentionArgs& a, const DecodeSequence& s, int head,
                             float k_scale) {
    constexpr int kRowLanes = D / 16, kRows = 32 / kRowLanes;
    const int lane = threadIdx.x % 32;
    __syncwarp();  // all lanes have read the head before
#pragma unroll 2
    for (int first = 0; first < kDecodeRows; first += kRows) {
      const int row = first + lane / kRowLanes, column = lane % kRowLanes * 16;
      const QueryRow<T, H> from(a, s, head, row);
      const uint4 low = from.template Read<uint4>(a, column);
      const uint4 high = from.template Read<uint4>(a, column + 8);
      float largest = 0.0f;
      for (const uint32_t pair : {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}) {
        largest = Larger<T>(largest, pair);
      }
#pragma unroll
      for (int distance = kRowLanes / 2; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
      }
      const QueryScale scale(largest);
      StoreVector(shared_ + SwizzledOffset<D * 2>(row, column / 8),
                  {scale.Scaled<T>(low.x), scale.Scaled<T>(low.z), scale.Scaled<T>(high.x),
                   scale.Scaled<T>(high.z)});
      StoreVector(shared_ + SwizzledOffset<D * 2>(row, column / 8 + 1),
                  {scale.Scaled<T>(low.y), scale.Scaled<T>(low.w), scale.Scaled<T>(high.y),
                   scale.Scaled<T>(high.w)});
      const float factor = scale.Factor(k_scale);
#pragma unroll
      for (int i = 0; i < kQueryTiles * 2; ++i) {
        const int wanted = QueryRowAt(i / 2, i % 2) - first;  // among these rows
        const float other = __shfl_sync(0xffffffffu, factor, wanted * kRowLanes & 31);
        if (wanted >= 0 && wanted < kRows) factor_[i / 2][i % 2] = other;
      }
    }
    __syncwarp();
  }

  using Base::fragment_;
  using Base::shared_;
  float factor_[kQueryTiles][2];  // of the scores of the lane's queries
};

template <typename T, typename H>
using QueriesOf = std::conditional_t<H::kEightBitKv, EightBitQueries<T, H>, Queries<T, H>>;

}  // namespace quire::cuda
