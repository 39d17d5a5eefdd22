// VectorKernels: the inner loops of the CPU operations, compiled once per instruction set. Each
// runs on the calling thread; the <op>.cc files split the work. Every instruction set gives the
// same bits for the same inputs.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/dtype.h"

// The compiler must inline the pieces of an inner loop into one loop.
#define QUIRE_INLINE inline __attribute__((always_inline))

namespace quire::cpu {

// Sixteen integers, as the compiler's own vectors.
using Words = uint32_t __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));

// A typed, read-only run of f32, bf16 or f16 elements.
struct Elements {
  const void* data = nullptr;
  DType dtype = DType::kF32;
};

// out[t][j] = sum over i of x[t][i] * w[j][i]; strides in elements.
struct MatMulBlock {
  const float* x;
  int64_t x_stride;
  int64_t tokens;
  Elements w;
  int64_t w_stride;
  int64_t rows;  // of w
  int64_t k;
  float* out;
  int64_t out_stride;
};

// Attention of `tokens` consecutive queries of one sequence over the keys at positions [keys_begin,
// keys_end). Each query has `group` heads, which share one key/value head.
struct AttentionBlock {
  const float* q;  // first token's first head; a token's heads are adjacent
  int64_t q_stride;
  int32_t tokens;
  int32_t group;
  int32_t head_dim;
  int64_t position;  // of the first query
  float scale;
  int32_t window;  // 0: unlimited
  Elements kv;     // the head's K at block 0, token 0
  int64_t block_stride;
  int64_t kv_stride;
  int32_t block_size;
  const int32_t* blocks;  // the sequence's row of the block table
  int64_t keys_begin;     // a multiple of kKeyTile
  int64_t keys_end;
  // Result: state row t * group + h, AttentionStateStride(head_dim) floats long: the sum over keys
  // of exp(score - top) * V [head_dim], then top, the largest score, then the sum of exp(score -
  // top). A row without a visible key has top -infinity and zeros.
  float* state;
  float* room;  // [AttentionRoom(head_dim)] scratch
};

// Every call takes keys in tiles that begin at multiples of this position.
inline constexpr int32_t kKeyTile = 16;
// Floats of AttentionBlock::room: a tile of K and of V in f32.
constexpr int64_t AttentionRoom(int64_t head_dim) { return 2 * kKeyTile * head_dim; }

constexpr int64_t AttentionStateStride(int64_t head_dim) {
  return RoundUp<int64_t>(head_dim + 2, 16);
}

struct RowStats {
  float top;       // largest element
  bool nonfinite;  // holds NaN or +infinity, or is all -infinity
};

// The result of a draw.
struct Drawn {
  float score;
  int32_t token;  // -1: none
};

// A draw over z = (logit - top) / temperature.
struct DrawRow {
  const float* z;
  int64_t vocab;
  float min_z;  // smallest z kept by top_k and top_p
  float min_p;
  uint64_t seed;
  uint32_t position;
};

struct VectorKernels {
  Isa isa;
  void (*widen)(Elements from, float* to, int64_t n);
  void (*narrow)(const float* from, void* to, DType dtype, int64_t n);
  void (*add)(float* to, const float* x, int64_t n);
  // out = x / rms(x) * weight.
  void (*rms_norm)(const float* x, Elements weight, float eps, float* out, int64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t n);
  // Rotates the pairs (head[i], head[i + half]).
  void (*rotate)(float* head, const float* cos, const float* sin, int64_t half);
  void (*matmul)(const MatMulBlock& block);
  void (*attend)(const AttentionBlock& block);
  // Folds the state row of later keys into that of earlier ones.
  void (*fold)(float* state, const float* later, int64_t head_dim);
  // out = the state's weighted mean.
  void (*finish)(const float* state, float* out, int64_t head_dim);
  RowStats (*row_stats)(const float* x, int64_t n);
  // Sum of floor(exp(x - top) * 2^40): an integer, the same in any order of addition.
  uint64_t (*exp_mass)(const float* x, float top, int64_t n);
  // e = exp(x), the bits of ExactExp; NaN stays NaN.
  void (*exp)(const float* x, float* e, int64_t n);
  // z = (x - top) / temperature.
  void (*scale_logits)(const float* x, float top, float temperature, float* z, int64_t n);
  // The first index where x equals `value`; n when there is none.
  int64_t (*find)(const float* x, float value, int64_t n);
  Drawn (*draw)(const DrawRow& row);
};

// The table of an instruction set that SupportedIsas lists.
const VectorKernels& KernelsFor(Isa isa);

}  // namespace quire::cpu
