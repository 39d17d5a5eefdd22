// The words of a score, as readings write them (reading.h).
#pragma once

#include <cstdint>

namespace quire {

inline constexpr int32_t kMaxTopTokens = 20;
inline constexpr int32_t kMaxScoredIds = 32;

// The words of a score: the token, its log probability (the bits of a float32) and its rank; then
// num_top pairs of a token and its log probability, in the order of ranks; then the log
// probabilities of the ids, in their order.
inline constexpr int32_t ScoreWords(int32_t num_top, int32_t num_ids) {
  return 3 + 2 * num_top + num_ids;
}

// A pair without a token, where fewer tokens than num_top are possible (logits above -infinity).
inline constexpr uint32_t kNoToken = 0xffffffff;

}  // namespace quire
