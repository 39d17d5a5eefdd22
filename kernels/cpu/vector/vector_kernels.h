// VectorKernels: the inner loops of the CPU operations, compiled once for each instruction set. A
// kernel runs on the calling thread; the <op>.cc files divide the work among threads. Every
// instruction set gives the same bits for the same inputs.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/dtype.h"

// Forces inlining, so that the functions of an inner loop compile into one loop.
#define QUIRE_INLINE inline __attribute__((always_inline))

namespace quire::cpu {

// Sixteen 32-bit integers in the compiler's vector types: unsigned and signed.
using Words = uint32_t __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));

// A typed, read-only run of f32, bf16 or f16 elements; of keys and values also 8-bit ones.
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

// Computes attention for `tokens` consecutive query tokens of one sequence over the keys at
// positions [keys_begin, keys_end). Each query token has `group` heads, which share one key/value
// head. A query sees the keys up to its own position, and within its window.
struct AttentionBlock {
  const float* q;  // first token's first head; a token's heads are adjacent
  int64_t q_stride;
  int32_t tokens;
  int32_t group;
  int32_t head_dim;
  int64_t position;  // of the first query
  float scale;
  float soft_cap;         // 0: none
  int32_t window;         // 0: unlimited
  Elements kv;            // K of this head in block 0, token 0; the next token is head_dim further
  int64_t block_stride;   // elements from one block to the next
  int64_t kv_stride;      // elements from K to V
  int32_t block_size;     // tokens
  const int32_t* blocks;  // the sequence's row of the block table
  // [256] each: the values of the 8-bit elements of K and of V; null if `kv` is wide.
  const float* k_values;
  const float* v_values;
  int64_t keys_begin;  // a multiple of kKeyTile
  int64_t keys_end;
  // The result: row t * group + h has AttentionStateStride(head_dim) floats. [0, head_dim): the sum
  // over keys of exp(score - top) * V; [head_dim]: top, the largest score; [head_dim + 1]: the sum
  // of exp(score - top). A row that sees no key has top -infinity and zeros.
  float* state;
  float* scratch;  // [AttentionScratch(head_dim)]
};

// Keys are processed in tiles of this many, which begin at multiples of it.
inline constexpr int32_t kKeyTile = 16;
// Floats of AttentionBlock::scratch: a tile of K and of V in f32.
constexpr int64_t AttentionScratch(int64_t head_dim) { return 2 * kKeyTile * head_dim; }

constexpr int64_t AttentionStateStride(int64_t head_dim) {
  return RoundUp<int64_t>(head_dim + 2, 16);
}

struct LayerNormRun;  // layer_norm_run.h

struct RowStats {
  float top;       // largest element
  bool nonfinite;  // holds NaN or +infinity, or is all -infinity
};

// The sampled token of a slice of the vocabulary.
struct Drawn {
  float score;    // z plus its noise: the largest score over all slices wins
  int32_t token;  // -1: none
};

// One draw over z = (logit - top) / temperature (kernels/sampling.h).
struct DrawRow {
  const float* z;
  int64_t vocab;
  float min_z;  // smallest z kept by top_k and top_p
  float min_p;  // keeps tokens with exp(z) of at least this
  uint64_t seed;
  uint32_t position;  // (seed, position, token) is the key of the noise
};

struct VectorKernels {
  Isa isa;
  // Converts to f32.
  void (*widen)(Elements from, float* to, int64_t n);
  // Converts f32 to `dtype`, rounding to the nearest.
  void (*narrow)(const float* from, void* to, DType dtype, int64_t n);
  void (*add)(float* to, const float* x, int64_t n);
  // out = x / rms(x) * weight.
  void (*rms_norm)(const float* x, Elements weight, float eps, float* out, int64_t n);
  void (*layer_norm)(const LayerNormRun& run);
  // to += scale * x, rounded after the product.
  void (*add_scaled)(float* to, const float* x, float scale, int64_t n);
  // x = factor * x, then with cap > 0, x = cap * tanh(x / cap).
  void (*scale)(float* x, float factor, float cap, int64_t n);
  // out = gelu(x) * up, without `up` if that is null.
  void (*gelu)(const float* x, const float* up, float* out, int64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t n);
  // Rotates the pairs (head[i], head[i + half]).
  void (*rotate)(float* head, const float* cos, const float* sin, int64_t half);
  void (*matmul)(const MatMulBlock& block);
  void (*attend)(const AttentionBlock& block);
  // Merges the state row `later` (of later keys) into `state` (of earlier ones).
  void (*fold)(float* state, const float* later, int64_t head_dim);
  // out = the sum of V over the sum of weights: the output of attention.
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

// The kernels of `isa`, constant for the process. Requires that SupportedIsas() lists it.
const VectorKernels& KernelsFor(Isa isa);

}  // namespace quire::cpu
