// Sampling of one token: the parameters of a request, the job of one row, and its result. Plain
// data without tensors, shared by the scheduler, the step message and the sampler of every backend.
#pragma once

#include <cstdint>

namespace quire {

// A request's sampling parameters. SamplingParams embeds this struct and every layer copies it
// whole, so only the request codec and the samplers name its fields. SamplingParams::Validate
// states and checks the ranges.
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

// The job of sampling one row of logits. In this order the sampler adds the biases; sets banned
// tokens to -infinity; applies the repetition, frequency and presence penalties; and takes the
// largest logit (greedy, the lowest token of equals) or draws.
//
// A draw. Let l be the logits after these steps, top the largest, z = (l - top) / temperature and e
// = ExactExp(z). The mass of a token is floor(e * 2^40), an integer, so the order of a sum does not
// matter. The draw keeps
// - by top_k: tokens whose z is at least the top_k-th largest; of those
// - by top_p: tokens for which the tokens of strictly larger z hold less than top_p of the mass;
//   of those
// - by min_p: tokens with e >= min_p (the largest e is 1).
// Hugging Face transformers filters in this order. Tokens that are equal at a threshold are all
// kept. The result is the kept token with the largest z + GumbelNoise(seed, num_known, token), the
// lowest token of equals: a draw from the softmax of the kept tokens that depends on (seed,
// position) alone. sampling_math.h has ExactExp and GumbelNoise to the bit, so every backend and
// every split of the vocabulary over ranks gives the same token.
struct SampleJob {
  SampleRow params;
  const int32_t* tokens = nullptr;  // [num_known] the prompt, then the output
  int32_t* drawn = nullptr;         // also receives the token; may be null
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
  // 1: the row has NaN or +Inf, or every token is at -inf. `token` has no meaning then, and the
  // row's request must fail.
  int32_t nonfinite = 0;
};

}  // namespace quire
