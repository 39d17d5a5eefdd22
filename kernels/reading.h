// Readings: what a step tells beside the drawn tokens, of the rows that ask: the place of tokens in
// a distribution, and sums of hidden states. Their results go to host memory directly, as words of
// 32 bits. A step without readings runs none of these operations.
#pragma once

#include <cstdint>

#include "kernels/score_words.h"
#include "kernels/tensor.h"

namespace quire {

// One row's score. Tokens are ordered by logit, the largest first, equals by id, the lowest first;
// ranks count from 1. A log probability is the logit less the logarithm of the sum of exponentials,
// that of an impossible token -infinity. A row with NaN or +infinity, or without a possible token,
// has rank 0; its other words have no meaning then.
struct ScoreJob {
  const int32_t* token = nullptr;  // the token to score, in device memory
  const int32_t* ids = nullptr;    // [num_ids] device memory
  uint32_t* out = nullptr;         // [ScoreWords] host memory that the device writes
  int32_t row = 0;                 // of the logits
  int32_t num_top = 0;             // at most kMaxTopTokens
  int32_t num_ids = 0;             // at most kMaxScoredIds
};

struct ScoreParams {
  TensorView logits;     // [R, V] f32; only read
  const ScoreJob* jobs;  // [num_jobs] host memory that the device reads
  int32_t num_jobs;
};

// out[h] = the sum of x[begin + i, h] over i < count, added to what `out` has if `adds`: in
// float32, row after row.
struct PoolJob {
  float* out = nullptr;  // [H] host memory that the device reads and writes
  int32_t begin = 0;
  int32_t count = 0;
  int32_t adds = 0;
};

struct PoolParams {
  TensorView x;         // [R, H] of the activations' type
  const PoolJob* jobs;  // [num_jobs] host memory that the device reads
  int32_t num_jobs;
};

class ReadingOperations {
 public:
  virtual ~ReadingOperations() = default;

  virtual void Score(const ScoreParams&) = 0;
  virtual void Pool(const PoolParams&) = 0;
};

}  // namespace quire
