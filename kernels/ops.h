// One params struct per operation: the written contract of the mathematics. Both backends implement
// exactly this. Dimension letters: T tokens of the step, S sequences, R logit rows, H hidden size,
// Q query heads, K key/value heads, D head dim, I intermediate size, V vocabulary (all of this
// rank).
//
// Every op's result for one token depends only on that token's own inputs (and, for attention, its
// own sequence): the order of every sum is fixed by the shape, never by T, S or the thread count.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace quire {

// out[t] = table[ids[t] - vocab_begin]; rows outside the table are zeros (another rank holds them).
struct EmbedParams {
  const int32_t* ids;  // [T]
  TensorView table;    // [V_local, H]
  int32_t vocab_begin;
  TensorView out;  // [T, H]
};

// If residual is set: residual += x, then x is taken from residual. out = x / rms(x) * weight over
// the last dimension, rms(x) = sqrt(mean(x^2) + eps). out may alias x.
struct RmsNormParams {
  TensorView x;         // [T, H]
  TensorView residual;  // [T, H] or empty; updated in place
  TensorView weight;    // [H]
  float eps;
  TensorView out;  // [T, H]
};

// out = x * w^T + bias. x is [T, k], w is [n, k] (row per output feature, as checkpoints store it).
struct MatMulParams {
  TensorView x;     // [T, k]
  TensorView w;     // [n, k]
  TensorView bias;  // [n] or empty
  TensorView out;   // [T, n]
};

// One layer of the paged KV pool. Element (block, kv, head, token, d) of the layer lies at
// base + block * block_stride + kv * kv_stride + head * head_stride + token * D + d (in elements);
// kv is 0 for K and 1 for V. Block 0 is the null block: padding writes there, nobody reads it.
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
};

// Splits qkv rows into Q, K, V; optionally RMS-normalises each Q and K head; rotates Q and K by the
// token's position (rotate-half pairs (i, i + D/2), as Hugging Face llama); writes K and V to the
// cache slot of the token (slot = block * block_size + offset) and Q back in place.
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

// Causal attention of each sequence's new queries over its paged context (the new tokens included).
// Sequence s owns queries [query_begin[s], query_begin[s+1]); its last query sits at position
// context_len[s] - 1. With window > 0 a query at position p sees keys in (p - window, p].
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
  int32_t window;         // 0: unlimited
  int32_t max_query_len;  // no sequence of the step has more queries; 1: every one decodes
  TensorView out;         // [T, Q * D]
};

// out[t, i] = silu(gate_up[t, i]) * gate_up[t, I + i].
struct SiluMulParams {
  TensorView gate_up;  // [T, 2I]
  TensorView out;      // [T, I]
};

// out[r] = x[rows[r]].
struct GatherRowsParams {
  TensorView x;         // [T, H]
  const int32_t* rows;  // [R]
  TensorView out;       // [R, H]
};

// The per-row sampling parameters the device needs; embedded in SamplingParams and copied whole, so
// that nothing between the request codec and the sampler enumerates its fields. Ranges are checked
// by SamplingParams::Validate, the only place that states them.
struct SampleRow {
  float temperature = 1.0f;         // 0: greedy
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0f;               // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // over prompt and output; 1: off
  float presence_penalty = 0.0f;    // over output; 0: off
  float frequency_penalty = 0.0f;   // over output; 0: off
  uint64_t seed = 0;                // key of the counter-based generator
};

struct LogitBias {
  int32_t token = 0;
  float bias = 0.0f;
};

// One row to sample. Order of operations: logit bias; banned tokens to -inf; repetition, frequency
// and presence penalties; then greedy (the lowest token of equal logits), or a draw.
//
// A draw. With l the logits now and top the largest, z = (l - top) / temperature, e = ExactExp(z)
// and the mass of a token floor(e * 2^40), an integer so that no order of summation matters, it
// keeps
// - top_k: tokens whose z is no less than the top_k-th largest; of those
// - top_p: tokens with less than top_p of the mass on tokens of strictly larger z; of those
// - min_p: tokens with e >= min_p (the largest e is 1).
// This is the order of Hugging Face transformers; equal tokens at a threshold are all kept. Of the
// kept it takes the largest z + GumbelNoise(seed, num_known, token), the lowest token of equals: a
// draw from their softmax that depends on (seed, position) alone. ExactExp and GumbelNoise are in
// sampling_math.h; with them every backend, and any split of the vocabulary over ranks, takes the
// same token.
struct SampleJob {
  SampleRow params;
  const int32_t* tokens = nullptr;  // [num_known] prompt, then output
  int32_t* drawn = nullptr;         // where the token is written as well; may be null
  int32_t num_prompt = 0;
  int32_t num_known = 0;
  const LogitBias* bias = nullptr;  // [num_bias], token ids unique
  int32_t num_bias = 0;
  const int32_t* banned = nullptr;  // [num_banned]: stop tokens before min_tokens is reached
  int32_t num_banned = 0;
};

struct SampleResult {
  int32_t token = 0;
  float logprob = 0.0f;  // log softmax of the raw logits at `token`
  // 1: the row held NaN or +Inf, or every token is at -inf; token is meaningless, the row must
  // fail.
  int32_t nonfinite = 0;
};

struct SampleParams {
  TensorView logits;      // [R, V] f32; scratch: contents are undefined afterwards
  const SampleJob* jobs;  // [R]
  SampleResult* results;  // [R]
};

// One row's share of a step: positions [start, start + count) run through the model. Their tokens
// are in the row's token table: written by this or an earlier step's patches, or drawn by an
// earlier step (possibly one whose result the host has not seen yet). With sample set, a token is
// drawn from the last position's logits and written at position start + count.
struct RowWork {
  int32_t row = 0;
  int32_t start = 0;
  int32_t count = 0;
  int32_t sample = 0;
};

// `bytes` bytes at offset `from` of the step's message go to device address `to`; all three are
// multiples of 4. Patches of one message do not overlap.
struct Patch {
  void* to = nullptr;
  uint32_t from = 0;
  uint32_t bytes = 0;
};

// The head of a step's message from the host: what changes in the device's tables, and which rows
// run. Offsets are bytes from the head, multiples of 16.
struct StepMessage {
  uint32_t bytes = 0;  // of the whole message
  int32_t num_patches = 0;
  int32_t num_rows = 0;     // S
  int32_t num_samples = 0;  // R: works with sample set
  uint32_t patches_at = 0;  // Patch[num_patches]
  uint32_t work_at = 0;     // RowWork[S]
  uint32_t jobs_at = 0;     // SampleJob[R], in the order of the works that sample; device pointers
  uint32_t reserved = 0;
};

// Where host and device exchange messages and results: `slots` of each in host memory that the
// device reads and writes (Backend::AllocateHost). Step number n uses slot n % slots, by a count
// kept on the device, so that a captured step finds its slot by itself.
struct StepRing {
  void* messages = nullptr;  // slot i at messages + i * message_stride bytes
  int64_t message_stride = 0;
  SampleResult* results = nullptr;  // slot i at results + i * result_stride elements
  int64_t result_stride = 0;
  int32_t slots = 0;
  uint64_t* step = nullptr;  // device memory: number of the current step; EndStep adds one
};

// First operation of a step: applies the message's patches, then expands its works into the flat
// arrays of the step. Shapes are the caller's (a captured step's are fixed) and must be the
// message's.
struct BeginStepParams {
  StepRing ring;
  int32_t num_tokens;          // T, the sum of the works' counts
  int32_t num_seqs;            // S
  int32_t num_samples;         // R
  const int32_t* token_table;  // [rows, token_stride] token ids by position
  int64_t token_stride;
  const int32_t* block_table;  // [rows, table_stride]
  int64_t table_stride;
  int32_t block_size;
  int32_t* token_ids;    // out [T]
  int32_t* positions;    // out [T]
  int64_t* slots;        // out [T] block * block_size + offset
  int32_t* query_begin;  // out [S + 1]
  int32_t* context_len;  // out [S]
  int32_t* table_row;    // out [S]
  int32_t* logit_rows;   // out [R] index into the T tokens
  SampleJob* jobs;       // out [R]
};

// Last operation of a step: hands the results to the host and counts the step.
struct EndStepParams {
  StepRing ring;
  const SampleResult* results;  // [R] device
  int32_t num_samples;          // R
};

// out[i] = amplitude * (2 u - 1) with u = (w + 1/2) / 2^32 and w = word i % 4 of Philox4x32 with
// key `seed` and counter {i / 4, 0, 0, 0}: weights of benchmarks, the same on every device.
struct FillUniformParams {
  TensorView out;
  uint64_t seed;
  float amplitude;
};

}  // namespace quire
