// Decode attention: out = softmax(q K^T * scale) V for sequences whose queries and G query heads a
// key/value head are at most 16 rows. K and V are read once, so the floor is their bytes over the
// read bandwidth.
//
// A CTA of four warps walks its range of units (attention_plan.h), 64 tokens at a time, or 128 of 8
// bits. Each warp owns a group of 16 of them, K and V, in stages of its own; of 8 bits two groups,
// which share the latency of a softmax, the bound where tokens have half the bytes. Tokens are the
// rows of the matrix instructions, and rows of queries their columns (decode_columns.cuh). The loop
// has no barrier, and the stages run on across units. 24 KiB * 4 warps * 2 CTAs = 192 KiB a
// multiprocessor (128 KiB for heads above 128) are in flight, where 33 KiB cover the latency of
// memory at its full rate.
//
// At the end of a unit the four states are merged in the order of the warps, and the unit's state
// is folded into the sum of the units before it: in registers if this CTA computed all of them,
// else through memory by the CTA that arrives last. Either way the order is that of the tokens.
#include "kernels/check.h"
#include "kernels/cuda/attention/attention_head.cuh"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/decode_columns.cuh"
#include "kernels/cuda/attention/decode_queries.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"

namespace quire::cuda {
namespace {

constexpr int kGroupTokens = kDecodeTile / kDecodeWarps;  // 16: at most one block of the table

template <typename H>
struct Sizes {
  static constexpr int D = H::kDim;
  static constexpr int kElementBytes = H::kEightBitKv ? 1 : 2;
  static constexpr int kRowBytes = D * kElementBytes;
  static constexpr int kGroups = H::kEightBitKv ? 2 : 1;
  static constexpr int kWarpTokens = kGroups * kGroupTokens;
  static constexpr int kCtaTokens = kDecodeWarps * kWarpTokens;
  static_assert(kCtaTokens == TokensAtOnce({.eight_bit = H::kEightBitKv}));
  static constexpr int kStages = D == 64 ? 6 : D == 128 ? 3 : 2;
  static constexpr uint32_t kGroupBytes = kGroupTokens * kRowBytes;
  static constexpr uint32_t kTileBytes = kGroups * kGroupBytes;  // a warp's K; its V has as many
  static constexpr uint32_t kStageBytes = 2 * kTileBytes;
  static constexpr uint32_t kQueriesAt = kStages * kStageBytes;  // in a warp's memory
  static constexpr uint32_t kQueryBytes = kQueriesInShared<D> ? kDecodeRows * D * 2 : 0;
  static constexpr uint32_t kWarpBytes = kQueriesAt + kQueryBytes;
  static constexpr uint32_t kMergeAt = kDecodeWarps * kWarpBytes;
  // The CTAs of a multiprocessor, each with 1 KiB for the system, share its 228 KiB.
  static constexpr uint32_t kSharedBytes = kMergeAt + HeadState<__half, H>::kMergeBytes;
  static_assert(DecodeCtasPerSm(D) * (kSharedBytes + 1024) <= 228 << 10);
};

// TileWalk: steps a warp through the tiles of its CTA's range.
template <typename H>
class TileWalk {
  static constexpr int kCtaTokens = Sizes<H>::kCtaTokens, kWarpTokens = Sizes<H>::kWarpTokens;

 public:
  __device__ TileWalk(const AttentionArgs& a, const DecodeRange& range, int warp)
      : sequences_(a.space.sequences + range.sequence),
        sequence_(range.first),
        units_left_(range.num_units),
        num_kv_heads_(a.num_kv_heads),
        offset_(warp * kWarpTokens),
        head_(range.head),
        chunk_(range.chunk) {
    EnterChunk();
  }

  __device__ const DecodeSequence& sequence() const { return sequence_; }
  __device__ int sequence_index(const AttentionArgs& a) const {
    return static_cast<int>(sequences_ - a.space.sequences);
  }
  __device__ int head() const { return head_; }
  __device__ bool done() const { return units_left_ == 0; }
  __device__ bool in_last_unit() const { return units_left_ == 1; }
  __device__ bool begins_head() const { return chunk_ == 0; }  // of a unit's first tile
  __device__ bool ends_unit() const { return base_ + kCtaTokens >= end_; }
  __device__ bool ends_head() const { return chunk_ + 1 == sequence_.num_chunks; }
  // The warp's first token of the tile, and whether the warp has any token there.
  __device__ int token() const { return base_ + offset_; }
  __device__ bool has_tokens() const { return has_group(0); }
  __device__ bool has_group(int g) const { return !done() && token() + g * kGroupTokens < end_; }

  __device__ void Next() {
    if (done()) return;
    if (ends_unit()) {
      NextUnit();
    } else {
      NextTile();
    }
  }
  __device__ void NextTile() { base_ += kCtaTokens; }
  __device__ void NextUnit() {
    if (--units_left_ == 0) return;
    if (++chunk_ == sequence_.num_chunks) {
      chunk_ = 0;
      if (++head_ == num_kv_heads_) {
        head_ = 0;
        sequence_ = *++sequences_;
      }
    }
    EnterChunk();
  }

 private:
  __device__ void EnterChunk() {
    base_ = sequence_.first() + chunk_ * sequence_.chunk;
    end_ = min(base_ + sequence_.chunk, sequence_.context);
  }

  const DecodeSequence* sequences_;
  DecodeSequence sequence_;
  int units_left_;
  const int num_kv_heads_;
  const int offset_;
  int head_, chunk_;
  int base_, end_;
};

// Loader: keeps a warp's stages filled. Looks up the block of a tile one tile before its use.
template <typename T, typename H>
class Loader {
  using Of = Sizes<H>;
  using Element = std::conditional_t<H::kEightBitKv, uint8_t, T>;

 public:
  __device__ Loader(const AttentionArgs& a, const DecodeRange& range, int warp, uint32_t stages)
      : a_(a), walk_(a, range, warp), stages_(stages) {
    const int lane = threadIdx.x % 32;
    row_ = lane / kRowVectors;
    from_ = row_ * H::Row(a) + lane % kRowVectors * kElements;
    in_row_ = H::Has(a, lane % kRowVectors * kElements);
    to_ = SwizzledOffset<Of::kRowBytes>(row_, lane % kRowVectors);
    LookUp();
  }

  // True if older steps wrote the next tile's K and V.
  __device__ bool next_is_old() const {
    const DecodeSequence& s = walk_.sequence();
    return !walk_.has_tokens() || walk_.token() + Of::kWarpTokens <= s.context - s.num_queries;
  }

  // Starts the next tile's copies into `stage` and closes their group, which may be empty.
  __device__ void Fill(int stage) {
    if (walk_.has_tokens()) {
      const DecodeSequence& s = walk_.sequence();
#pragma unroll
      for (int g = 0; g < Of::kGroups; ++g) {
        const int token = walk_.token() + g * kGroupTokens;
        const int in_block = token & ((1 << a_.block_shift) - 1);
        const Element* k = static_cast<const Element*>(a_.kv) + block_[g] * a_.block_stride +
                           walk_.head() * a_.head_stride + in_block * H::Row(a_) + from_;
        const Element* v = k + a_.kv_stride;
        const uint32_t to = stages_ + stage * Of::kStageBytes + g * Of::kGroupBytes;
        const uint32_t first = token + row_ - s.start, seen = s.context - s.start;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          // Slots that no query sees may hold anything, even NaN. They are read as zeros.
          const bool valid = in_row_ && first + i * kRows < seen;
          const int64_t from = i * kRows * H::Row(a_);
          // The place of row row_ + i * kRows differs from row_'s in the bits of i * kRows alone.
          const uint32_t place = (to_ ^ ((i * kRows & 7) << 4)) + i * kRows * Of::kRowBytes;
          CopyAsync(to + place, k + from, valid);
          CopyAsync(to + Of::kTileBytes + place, v + from, valid);
        }
      }
    }
    CopyCommit();
    walk_.Next();
    LookUp();
  }

 private:
  static constexpr int kElements = 16 / sizeof(Element);  // of a 16-byte vector
  static constexpr int kRowVectors = H::kDim / kElements;
  static constexpr int kRows = 32 / kRowVectors;  // rows a warp copies at once
  static constexpr int kCopies = kGroupTokens / kRows;
  static_assert((kRows & (kRows - 1)) == 0 && kRows <= 8);

  __device__ void LookUp() {
#pragma unroll
    for (int g = 0; g < Of::kGroups; ++g) {
      if (!walk_.has_group(g)) return;
      block_[g] = a_.block_table[walk_.sequence().table_row * a_.table_stride +
                                 ((walk_.token() + g * kGroupTokens) >> a_.block_shift)];
    }
  }

  const AttentionArgs& a_;
  TileWalk<H> walk_;
  const uint32_t stages_;
  int row_, from_;
  bool in_row_;
  uint32_t to_;
  int64_t block_[Of::kGroups] = {};  // of each group of the next tile
};

// A warp's tokens of a tile: the first one, where their K and V lie in shared memory, and the
// number of queries.
struct TokensAt {
  int token;
  uint32_t memory;
  int num_rows;
};

// s = K q^T of 16 tokens, for kTiles tiles of queries.
template <typename T, typename H, int kTiles, int D = H::kDim>
__device__ __forceinline__ void Scores(const QueriesOf<T, H>& q, uint32_t k_fragments,
                                       float (&s)[kTiles][4]) {
  float odd[kTiles][4] = {};  // two chains of sums each: half the latency
  if constexpr (H::kEightBitKv) {
    // A vector is the 16 columns of one product, in the order of queries (decode_queries.cuh).
#pragma unroll 4
    for (int pair = 0; pair < D / 32; ++pair) {
      uint32_t m[4];
      LoadMatrices(m, k_fragments ^ VectorPair(pair));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t of_q[4];
        q.Get(2 * pair + i, of_q);
        const uint32_t low = m[2 * i], high = m[2 * i + 1];
        const uint32_t k[4] = {WidenLow(low), WidenLow(high), WidenHigh(low), WidenHigh(high)};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          MultiplyAdd<__half>(i == 0 ? s[tile] : odd[tile], k, of_q[tile], of_q[2 + tile]);
        }
      }
    }
  } else {
#pragma unroll 8
    for (int k = 0; k < D / 16; ++k) {
      uint32_t of_q[4], m[4];
      q.Get(k, of_q);
      LoadMatrices(m, k_fragments ^ VectorPair(k));
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        MultiplyAdd<T>(k % 2 == 0 ? s[tile] : odd[tile], m, of_q[tile], of_q[2 + tile]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) s[i / 4][i % 4] += odd[i / 4][i % 4];
}

// The weights of 16 tokens as the right operands of a product: tokens 2 (l % 4) and the next one,
// and those 8 further on, of query l / 4.
struct WeightOperands {
  uint32_t at[2];
};

// o += V^T p^T of 16 tokens.
template <typename T, typename H, int kSome, typename Columns, int D = H::kDim>
__device__ __forceinline__ void AddValues(const WeightOperands (&p)[kSome], uint32_t v_fragments,
                                          Columns& columns) {
#pragma unroll
  for (int pair = 0; pair < D * Sizes<H>::kElementBytes / 32; ++pair) {
    uint32_t m[4];
    LoadMatricesTransposed(m, v_fragments ^ VectorPair(pair));
    if constexpr (H::kEightBitKv) {
      // A transposed load gives columns 2 c and 2 c + 1 of a token, and then of the next one. The
      // even columns of a vector become the first eight rows of the product, the odd ones the rest.
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t low = __byte_perm(m[2 * i], 0, 0x3120);
        const uint32_t high = __byte_perm(m[2 * i + 1], 0, 0x3120);
        const uint32_t v[4] = {WidenLow(low), WidenHigh(low), WidenLow(high), WidenHigh(high)};
#pragma unroll
        for (int tile = 0; tile < kSome; ++tile) {
          const auto& [first, second] = p[tile].at;
          MultiplyAdd<__half>(columns.o[tile][2 * pair + i], v, first, second);
        }
      }
    } else {
      const uint32_t v[4] = {m[0], m[2], m[1], m[3]};
#pragma unroll
      for (int tile = 0; tile < kSome; ++tile) {
        const auto& [first, second] = p[tile].at;
        MultiplyAdd<T>(columns.o[tile][pair], v, first, second);
      }
    }
  }
}

// Adds a warp's tokens to the columns of the first kSome tiles of queries.
template <typename T, typename H, bool kCapped, int kSome, int kTiles, int D = H::kDim>
__device__ __forceinline__ void TakeTokens(const AttentionArgs& a, const QueriesOf<T, H>& q,
                                           const Sight<kTiles>& sight, TokensAt at,
                                           DecodeColumns<D, kTiles>& columns) {
  using Of = Sizes<H>;
  constexpr int kGroups = Of::kGroups;
  const int token = at.token;
  const uint32_t fragments = FragmentAddress<Of::kRowBytes>(at.memory);
  float s[kSome][kGroups][4];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    float of_group[kSome][4] = {};
    Scores<T, H, kSome>(q, fragments + g * Of::kGroupBytes, of_group);
#pragma unroll
    for (int i = 0; i < kSome * 4; ++i) s[i / 4][g][i % 4] = of_group[i / 4][i % 4];
  }
  const bool hides = sight.Hides(token, Of::kWarpTokens);
  RowFactors scales[kSome];
#pragma unroll
  for (int tile = 0; tile < kSome; ++tile) {
    scales[tile] = q.Factors(tile, a.scale_log2);
    if constexpr (kCapped) {
      if (hides) sight.template Mask<kGroups>(token, tile, s[tile]);
      CapTokens<kGroups>(s[tile], q.Factors(tile, a.cap_factor), a.cap_log2);
      scales[tile] = {{a.scale_log2, a.scale_log2}};
    }
    if (hides) sight.template Mask<kGroups>(token, tile, s[tile]);
  }
  columns.TakeScores(s, scales);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    WeightOperands p[kSome];
#pragma unroll
    for (int i = 0; i < kSome * 2; ++i) {
      const float(&weights)[4] = s[i / 2][g];
      p[i / 2].at[i % 2] =
          Transposed(Pack<Operand<T, H>>(weights[i % 2 * 2], weights[i % 2 * 2 + 1]));
    }
    AddValues<T, H>(p, fragments + g * Of::kGroupBytes + Of::kTileBytes, columns);
  }
}

// Adds a warp's tokens to the columns of its queries.
template <typename T, typename H, bool kCapped, int kTiles, int D = H::kDim>
__device__ __forceinline__ void TakeTile(const AttentionArgs& a, const QueriesOf<T, H>& q,
                                         const Sight<kTiles>& sight, TokensAt at,
                                         DecodeColumns<D, kTiles>& columns) {
  if (kTiles == 1 || at.num_rows <= kTileQueries) {
    TakeTokens<T, H, kCapped, 1>(a, q, sight, at, columns);
  } else {
    TakeTokens<T, H, kCapped, kTiles>(a, q, sight, at, columns);
  }
}

// A head with chunks in several ranges.
struct SharedHead {
  DecodeSequence s;
  int sequence, head;
  int owner, sharers = 0;  // 0 sharers: no head is shared
};

// Offsets of the states of range `r`'s chunks, and of the state that an owner folds of its own
// chunks, which lies at the end of the owner's stride.
__device__ int64_t StatesAt(const AttentionSpace& space, int r) { return r * space.state_stride; }
template <int D>
__device__ int64_t SumAt(const AttentionSpace& space, int owner, int num_rows) {
  return StatesAt(space, owner + 1) - num_rows * StateRowFloats(D);
}

// Offsets of the states of a head: the owner's sum in the place of the owner's last chunk
// (`first`), then one state a chunk.
struct StateList {
  int64_t at[kMaxChunks];
  int first;
};

// Shared memory of a CTA that has ended its range, for the heads at both ends of the range.
struct Arrival {
  StateList states[2];
  bool last[2];
};

// Lists the states of a head. Called by all warps but the first.
template <int D>
__device__ void ListStates(const AttentionSpace& space, const SharedHead& h, int num_rows,
                           StateList* list) {
  for (int r = h.owner + 1 + static_cast<int>(threadIdx.x) - 32; r < static_cast<int>(gridDim.x);
       r += kDecodeThreads - 32) {
    const int4 range = *reinterpret_cast<const int4*>(&space.ranges[r]);
    if (range.x != h.sequence || range.y != h.head) break;
    const int begin = range.z, end = min(begin + range.w, h.s.num_chunks);
    if (r == h.owner + 1) {
      list->first = begin - 1;
      list->at[begin - 1] = SumAt<D>(space, h.owner, num_rows);
    }
    for (int c = begin; c < end; ++c) {
      list->at[c] = StatesAt(space, r) + (c - begin) * num_rows * StateRowFloats(D);
    }
  }
}

// Announces that this CTA has written its states of a shared head. True if it is the last to
// announce: then it can read the states of all others. The counter wraps to zero.
__device__ bool ArrivesLast(const AttentionSpace& space, int owner, int sharers) {
  if (sharers == 0) return false;
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(space.arrivals + owner), "r"(sharers - 1)
               : "memory");
  return before + 1 == static_cast<uint32_t>(sharers);
}

// Folds a head's states from memory, as many at a time as the stages hold, and stores the head.
template <typename T, typename H>
__device__ void FoldHead(const AttentionArgs& a, const SharedHead& h, const StateList& list,
                         char* shared, HeadState<T, H>& state) {
  const int num_rows = h.s.num_queries * a.group, vectors = num_rows * StateRowFloats(H::kDim) / 4;
  const int room = static_cast<int>(Sizes<H>::kMergeAt) / (vectors * 16);
  state.Reset();
  state.AskScale(h.head);
#pragma unroll 1
  for (int c = list.first; c < h.s.num_chunks; c += room) {
    const int count = min(room, h.s.num_chunks - c);
    // Asynchronous copies bypass the first-level cache, which is not coherent.
    for (int i = threadIdx.x / 32; i < count; i += kDecodeWarps) {
      const float* from = a.space.states + list.at[c + i];
      const uint32_t to = SharedAddress(shared) + i * vectors * 16;
      for (int v = threadIdx.x % 32; v < vectors; v += 32) {
        CopyAsync(to + v * 16, from + v * 4, true);
      }
    }
    CopyWait<0>();
    __syncthreads();
    state.FoldShared(reinterpret_cast<const float*>(shared), num_rows, count);
    __syncthreads();
  }
  state.Store(h.s, h.head);
}

// Ends a CTA: the CTA that arrives last at a shared head finishes that head, for the heads at both
// ends of the range. The arrival comes last of all, so that it waits for no copy of K and V; the
// other warps list the states meanwhile, needed or not.
template <typename T, typename H>
__device__ void Arrive(const AttentionArgs& a, const SharedHead& begin, const SharedHead& end,
                       char* shared, HeadState<T, H>& state) {
  auto* arrival = reinterpret_cast<Arrival*>(shared + Sizes<H>::kMergeAt);
  __syncthreads();  // all threads have written their states and read the last merge
  if (threadIdx.x < 2) {
    const bool first = threadIdx.x == 0;
    arrival->last[threadIdx.x] =
        ArrivesLast(a.space, first ? begin.owner : end.owner, first ? begin.sharers : end.sharers);
  }
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const SharedHead h = i == 0 ? begin : end;
    if (threadIdx.x < 32 || h.sharers == 0) continue;
    ListStates<H::kDim>(a.space, h, h.s.num_queries * a.group, &arrival->states[i]);
  }
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    if (!arrival->last[i]) continue;
    const SharedHead h = i == 0 ? begin : end;
    FoldHead(a, h, arrival->states[i], shared, state);
  }
}

// Wait before trigger: rule 2 of launch.h.
__device__ __forceinline__ void Wait() {
  PdlWait();
  PdlTrigger();
}

// The queries of a sequence fill at most kTiles tiles.
template <typename T, typename H, bool kCapped, int kTiles>
__global__ __launch_bounds__(kDecodeThreads, DecodeCtasPerSm(H::kDim)) void DecodeKernel(
    const __grid_constant__ AttentionArgs a) {
  constexpr int D = H::kDim;
  using Of = Sizes<H>;
  extern __shared__ __align__(1024) char shared[];
  // A settled layer loads its first tiles before the step's queries, keys and values can be read.
  bool waits = a.settled;
  if (!waits) Wait();
  const DecodeRange range = a.space.ranges[blockIdx.x];
  if (range.num_units == 0) {
    if (waits) Wait();
    return;
  }
  const int cta = static_cast<int>(blockIdx.x), warp = threadIdx.x / 32;
  const uint32_t stages = SharedAddress(shared) + warp * Of::kWarpBytes;
  TileWalk<H> walk(a, range, warp);
  Loader<T, H> loader(a, range, warp, stages);
  SharedHead begin, end;
  bool owned = range.chunk == 0;
  if (!owned) {
    begin = {range.first, range.sequence, range.head, range.begin_owner, range.begin_sharers};
  }
  QueriesOf<T, H> q(stages + Of::kQueriesAt);
  Sight<kTiles> sight;
  DecodeColumns<D, kTiles> columns;
  columns.Reset();
  HeadState<T, H> state(a, shared + Of::kMergeAt);
  float* written = a.space.states + StatesAt(a.space, cta);  // behind the states of units
  bool new_head = true;
  int stage = 0;
  int round = 0;
  while (!walk.done()) {
    // The tiles of a unit. The first rounds of all only fill the stages; they share the loop's
    // code, because a launch waits for instructions that it executes for the first time.
#pragma unroll 1
    for (bool ended = false; !ended; ++round) {
      const bool takes = round >= Of::kStages;
      if (waits && (takes || !loader.next_is_old())) {
        Wait();
        waits = false;
      }
      if (takes) {
        if (new_head) {
          q.Load(a, walk.sequence(), walk.head());
          state.AskScale(walk.head());
          sight.Set(a, walk.sequence());
          new_head = false;
        }
        CopyWait<Of::kStages - 1>();
        __syncwarp();
        if (walk.has_tokens()) {
          TakeTile<T, H, kCapped>(a, q, sight,
                                  {walk.token(), stages + stage * Of::kStageBytes,
                                   walk.sequence().num_queries * a.group},
                                  columns);
        }
        __syncwarp();
      }
      loader.Fill(stage);
      stage = stage + 1 == Of::kStages ? 0 : stage + 1;
      if (!takes) continue;
      ended = walk.ends_unit();
      if (!ended) walk.NextTile();
    }
    const DecodeSequence& s = walk.sequence();
    const int num_rows = s.num_queries * a.group;
    state.TakeUnit(columns, num_rows, owned, written);
    columns.Reset();
    if (!owned) written += num_rows * StateRowFloats(D);
    if (walk.ends_head()) {
      if (owned) state.Store(s, walk.head());
      state.Reset();
      owned = true;
    } else if (walk.in_last_unit() && owned) {
      state.WriteSum(num_rows, a.space.states + SumAt<D>(a.space, cta, num_rows));
      end = {s, walk.sequence_index(a), walk.head(), cta, range.end_sharers};
    }
    walk.NextUnit();
    new_head = walk.begins_head();
  }
  if (begin.sharers > 0 || end.sharers > 0) {
    Arrive(a, begin, end, shared, state);
  }
}

template <typename T, typename H, bool kCapped, int kTiles>
void LaunchTyped(const AttentionArgs& args, const Device& device) {
  // Both forms with the first: a start warms steps of one form alone, and the first launch of the
  // other would load it in service.
  AllowShared<DecodeKernel<T, H, kCapped, 1>, Sizes<H>::kSharedBytes>();
  AllowShared<DecodeKernel<T, H, kCapped, kQueryTiles>, Sizes<H>::kSharedBytes>();
  const auto ctas = static_cast<uint32_t>(DecodeCtasPerSm(H::kDim) * device.num_sms);
  Launch(device,
         {.blocks = ctas, .threads = kDecodeThreads, .shared_bytes = Sizes<H>::kSharedBytes},
         DecodeKernel<T, H, kCapped, kTiles>, args);
}

}  // namespace

void LaunchDecode(const PagedAttentionParams& p, const AttentionArgs& args, const Device& device) {
  DispatchHalf(p.q.dtype, [&](auto tag) {
    DispatchHead(p.kv, args.cap_log2 > 0, [&](auto head, auto capped) {
      using H = decltype(head);
      if (int64_t{p.max_query_len} * args.group <= kTileQueries) {
        LaunchTyped<decltype(tag), H, capped.value, 1>(args, device);
      } else {
        LaunchTyped<decltype(tag), H, capped.value, kQueryTiles>(args, device);
      }
    });
  });
}

}  // namespace quire::cuda
