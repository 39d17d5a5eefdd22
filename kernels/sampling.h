// The values of a draw: what a request says about how its tokens are chosen, what the sampler is
// given for one row, and what it answers. Plain data without tensors, shared by the scheduler, the
// host's messages and every backend's sampler.
#pragma once

#include <cstdint>

namespace quire {

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

}  // namespace quire
