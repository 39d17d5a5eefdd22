// The operations of a forward pass: one params struct each, which defines the result. Every backend
// computes exactly this. step_message.h has the operations that begin and end a step, sampling.h
// defines the draw of a token.
//
// Shapes are written with these letters, all of this rank: T tokens of the step, S sequences, R
// rows of logits, H hidden size, Q query heads, K key/value heads, D head dim, I intermediate size,
// V vocabulary. Pointers are device memory.
//
// A token's result depends on that token's inputs alone, and in attention on its sequence. The
// shape of one row fixes the order of every sum; T, S and the number of threads never change it,
// with one exception: a GPU's matrix products (kernels/cuda/matmul/) of more than 16 tokens, and of
// more than two where weights are packed. Those of 8-bit integers keep the rule.
#pragma once

#include <cstdint>

#include "kernels/sampling.h"
#include "kernels/tensor.h"

namespace quire {

// out[t] = table[ids[t] - vocab_begin]. An id outside the table gives zeros: another rank has its
// row.
struct EmbedParams {
  const int32_t* ids;  // [T]
  TensorView table;    // [V_local, H]
  int32_t vocab_begin;
  TensorView out;  // [T, H]
};

// out = x / rms(x) * weight over the last dimension, with rms(x) = sqrt(mean(x^2) + eps). With a
// residual, residual += x comes first, and the updated residual takes the place of x. out may alias
// x.
struct RmsNormParams {
  TensorView x;         // [T, H]
  TensorView residual;  // [T, H] or empty; updated in place
  TensorView weight;    // [H]
  float eps;
  TensorView out;  // [T, H]; or 8-bit (QuantizeParams)
};

inline constexpr int64_t kMaxIntegerColumns = 131072;  // times 127 * 128 is below 2^31

// out = x * w^T + bias. x is [T, k], w is [n, k] (row per output feature, as checkpoints store it).
// Both are 8-bit with scales for the same columns, or neither is. Of 8-bit ones, the sum over the
// elements of each block of columns is multiplied by the scales of both rows there, and these
// products are added in float32: one in all where a row has one scale. Sums of integers are exact,
// and k is at most kMaxIntegerColumns. w alone may be packed (packed_row.h), its scales of one row
// each: then the values of its elements are the factors, on the CPU as floats. A GPU may round them
// to x's type.
struct MatMulParams {
  TensorView x;     // [T, k]
  TensorView w;     // [n, k]
  TensorView bias;  // [n] or empty
  TensorView out;   // [T, n]
};

// One layer of the paged KV pool. Element (block, kv, head, token, d) of the layer lies at base +
// block * block_stride + kv * kv_stride + head * head_stride + token * D + d (in elements); kv is 0
// for K and 1 for V. Block 0 is the null block: padding rows write to it, no sequence reads it.
struct KvLayerView {
  void* base = nullptr;  // already offset to the layer
  DType dtype = DType::kF32;
  int64_t block_stride = 0;
  int64_t kv_stride = 0;
  int64_t head_stride = 0;
  int32_t block_size = 0;  // tokens per block
  int32_t num_blocks = 0;
  int32_t num_kv_heads = 0;  // K, of this rank
  int32_t head_dim = 0;      // D
  // [K] each, of an 8-bit layer; else null. The value of an element is the element times the scale
  // of its head.
  const float* k_scales = nullptr;
  const float* v_scales = nullptr;
};

// Splits each row of qkv into Q, K and V; RMS-normalises each head of Q and K where a norm is
// given; rotates Q and K by the token's position (pairs (i, i + D/2), as llama in Hugging Face
// transformers); writes K and V to the token's slot (block * block_size + offset) and Q back in
// place. An 8-bit layer takes K as rotated in f32, without a rounding in between, and V: element =
// FromFloat<E4M3>(value * InverseOf(scale)) (row_scale.h).
struct RopeStoreKvParams {
  TensorView qkv;            // [T, (Q + 2K) * D]; the Q part is updated in place
  int32_t num_heads;         // Q
  const int32_t* positions;  // [T]
  const int64_t* slots;      // [T]
  TensorView cos_sin;        // [max_position, D] f32: D/2 cosines, then D/2 sines; scaling included
  TensorView q_norm;         // [D] or empty
  TensorView k_norm;         // [D] or empty
  float norm_eps;
  KvLayerView kv;
};

// Causal attention of each sequence's new queries over its paged context, which includes the new
// tokens. Sequence s owns queries [query_begin[s], query_begin[s+1]); its last query sits at
// position context_len[s] - 1. With window > 0 a query at position p sees keys in (p - window, p].
struct PagedAttentionParams {
  TensorView q;  // [T, Q * D], strided rows (the Q columns of qkv)
  KvLayerView kv;
  int32_t num_heads;           // Q
  int32_t num_seqs;            // S
  const int32_t* query_begin;  // [S + 1]
  const int32_t* context_len;  // [S]
  const int32_t* table_row;    // [S] row of block_table for the sequence
  const int32_t* block_table;  // [rows, table_stride]
  int64_t table_stride;
  float scale;            // usually 1 / sqrt(D)
  float soft_cap = 0;     // c > 0: a score s becomes c * tanh(s / c); 0: none
  int32_t window;         // 0: unlimited
  int32_t max_query_len;  // the most queries of one sequence; 1: every sequence decodes
  TensorView out;         // [T, Q * D]
};

// out[t, i] = silu(gate_up[t, i]) * gate_up[t, I + i].
struct SiluMulParams {
  TensorView gate_up;  // [T, 2I]
  TensorView out;      // [T, I]; or 8-bit
};

// out[r] = x[rows[r]].
struct GatherRowsParams {
  TensorView x;         // [T, H]
  const int32_t* rows;  // [R]
  TensorView out;       // [R, H]
};

// Draws one token for each row, as sampling.h defines.
struct SampleParams {
  TensorView logits;      // [R, V] f32; scratch: afterwards a row has what its job keeps
  const SampleJob* jobs;  // [R]
  SampleResult* results;  // [R]
};

// Weights of benchmarks, the same on every device. out[i] = amplitude * (2 u - 1) with u = (w +
// 1/2) / 2^32 and w = word i % 4 of Philox4x32 with key `seed` and counter {i / 4, 0, 0, 0}. The
// elements of a packed matrix (packed_row.h) are the words' bits, 16 bytes of four words each.
struct FillUniformParams {
  TensorView out;
  uint64_t seed;
  float amplitude;
};

}  // namespace quire
