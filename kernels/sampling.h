// Sampling of one token: the parameters of a request, the job of one row, and its result. Plain
// data without tensors, shared by the scheduler, the step message and the sampler of every backend.
#pragma once

#include <cstdint>

namespace quire {

// A request's sampling parameters. SamplingParams embeds this struct and every layer copies it
// whole: sampling_params.cc has the table of ranges, and the samplers read the fields.
struct SampleRow {
  float temperature = 1.0f;         // 0: greedy
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0f;               // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // over prompt and output; 1: off
  float presence_penalty = 0.0f;    // over output; 0: off
  float frequency_penalty = 0.0f;   // over output; 0: off
  float top_n_sigma = 0.0f;         // in standard deviations of the logits; 0: off
  float dynatemp_range = 0.0f;      // 0: off
  float dynatemp_exponent = 1.0f;
  float typical_p = 1.0f;        // 1: off
  float xtc_probability = 0.0f;  // 0: off
  float xtc_threshold = 0.1f;
  float dry_multiplier = 0.0f;  // over prompt and output; 0: off
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_last_n = 0;  // tokens; 0: all
  uint64_t seed = 0;       // key of the counter-based generator
};

struct LogitBias {
  int32_t token = 0;
  float bias = 0.0f;
};

// The logits of a row that Sample leaves for a reading (reading.h).
enum class KeptLogits : int32_t {
  kNone,  // undefined
  kRaw,   // the model's
  // Greedy: the edited logits, of which the largest was taken. Else the z of the tokens that the
  // filters kept, -infinity for all others: their softmax is what was drawn from.
  kProcessed,
};

// The longest repetition that DRY tells from longer ones, in tokens.
inline constexpr int32_t kDryMostTokens = 50;

// The job of sampling one row of logits.
//
// Logits. In this order the sampler
// - sets to -infinity the tokens without a bit in the mask;
// - adds the biases;
// - sets to -infinity the banned tokens; the last token of each bad word whose other tokens are the
//   last known ones; and, if there are allowed tokens, all others;
// - applies the repetition, frequency and presence penalties;
// - applies DRY: of the last dry_last_n known tokens, take an earlier one, t, with the n <=
//   kDryMostTokens tokens before it, and let these equal the last n known tokens, none of them a
//   breaker. With the largest such n of token t, if n >= dry_allowed_length and t is no breaker,
//   the logit of t loses dry_multiplier * dry_base^(n - dry_allowed_length), by that many products
//   one after the other.
// Then it takes the largest logit (greedy, the lowest token of equals) or draws.
//
// A draw. Let l be the logits after these steps and top the largest. A token is possible if l is
// above -infinity.
// - top_n_sigma drops tokens with top - l > top_n_sigma * sigma, where sigma is the standard
//   deviation of floor(4096 min(top - l, 255)) / 4096 over the possible tokens.
// - temperature t. With dynatemp_range r, let h be the entropy of the possible tokens left, at
//   temperature 1, over its largest value, the logarithm of their number. Then
//   t = max(2^-10, temperature - r + 2 r h^dynatemp_exponent).
// Let z = (l - top) / t and e = ExactExp(z). The mass of a token is floor(e * 2^40), an integer, so
// the order of a sum does not matter. The draw keeps
// - by top_k: tokens whose z is at least the top_k-th largest; of those
// - by top_p: tokens for which the tokens of strictly larger z hold less than top_p of the mass;
//   of those
// - by min_p: tokens with e >= min_p (the largest e is 1); of those
// - by typical_p: with a the mean of -z by mass, tokens for which the tokens of strictly smaller
//   |z + a| hold less than typical_p of the mass. |z + a| is how far a token's surprise, -ln p, is
//   from the entropy; of those
// - by XTC, if the draw's coin falls on xtc_probability: tokens for which no token of strictly
//   smaller z has xtc_threshold of the mass or more. So of several likely tokens the least likely
//   stays.
// Hugging Face transformers filters in this order. Tokens that are equal at a threshold are all
// kept. The result is the kept token with the largest z + GumbelNoise(seed, num_known, token), the
// lowest token of equals: a draw from the softmax of the kept tokens that depends on (seed,
// position) alone. sampling_math.h has all arithmetic to the bit, so every backend and every split
// of the vocabulary over ranks gives the same token.
struct SampleJob {
  SampleRow params;
  const int32_t* tokens = nullptr;  // [num_known] the prompt, then the output
  int32_t* drawn = nullptr;         // also receives the token; may be null
  int32_t num_prompt = 0;
  int32_t num_known = 0;
  const LogitBias* bias = nullptr;  // [num_bias], by ascending token, each once
  int32_t num_bias = 0;
  int32_t num_banned = 0;
  const int32_t* banned = nullptr;     // [num_banned]: stop tokens before min_tokens is reached
  const int32_t* bad_words = nullptr;  // [num_bad_words]: words, the last token of each as ~token
  const int32_t* allowed = nullptr;    // [num_allowed]; none: all tokens
  const int32_t* breakers = nullptr;   // [num_breakers]
  // [MaskWords(V)] in memory that the device reads: bit t % 32 of word t / 32 is of token t. Null:
  // every token may be drawn.
  const uint32_t* mask = nullptr;
  // Null: the mask is there. Otherwise a word that the host writes while the step runs: num_known
  // when the mask is there. The sampler waits while the word is kMaskAwaited, at most about
  // kMaskPatienceNs; for any other word it draws nothing (kNoMask). One that sleeps meanwhile
  // writes kMaskSleeping, and is woken by FutexWake.
  uint32_t* mask_for = nullptr;
  int32_t num_bad_words = 0;
  int32_t num_allowed = 0;
  int32_t num_breakers = 0;
  KeptLogits kept = KeptLogits::kNone;
};

constexpr int64_t MaskWords(int64_t vocab) { return (vocab + 31) / 32; }
inline constexpr uint32_t kMaskAwaited = 0, kMaskWithheld = ~uint32_t{0};
inline constexpr uint32_t kMaskSleeping = kMaskWithheld - 1;
// Only a host that has stopped is so late: a running one withholds masks that hold up others.
inline constexpr int64_t kMaskPatienceNs = 2'000'000'000;

struct SampleResult {
  int32_t token = 0;
  float logprob = 0.0f;  // log softmax of the raw logits at `token`
  // kUnsound: the row has NaN or +Inf, or every token is at -inf. kNoToken: it was sound, and mask,
  // bans and allowed tokens together leave no token. `token` has no meaning then, and the row's
  // request must end. kNoMask: its late mask did not come, and nothing was drawn: `token` is 0 and
  // the draw is to be made again.
  int32_t nonfinite = 0;

  static constexpr int32_t kUnsound = 1;
  static constexpr int32_t kNoToken = 2;
  static constexpr int32_t kNoMask = 3;
};

}  // namespace quire
