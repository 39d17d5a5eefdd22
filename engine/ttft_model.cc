// The work ahead of a request.
#include "engine/ttft_model.h"

#include <algorithm>
#include <cmath>

namespace quire {

std::optional<double> PredictTtft(const TtftSituation& s) {
  if (s.step_seconds + s.token_seconds <= 0) return std::nullopt;
  const double own = static_cast<double>(s.prompt_tokens + s.own_tokens);
  // Other tenants get tokens in the ratio of the weights until its own are computed, or until they
  // have none left.
  const double others =
      std::min(static_cast<double>(s.other_tokens), own * (1 - s.share) / s.share);
  // The step in flight ends first.
  const double steps = 1 + std::max(1.0, std::ceil((own + others) / s.step_tokens));
  const double computing = steps * s.step_seconds + (own + others) * s.token_seconds;
  if (!s.waits_for_row) return computing;
  if (s.own_begun_per_second <= 0) return std::nullopt;
  const double before = static_cast<double>(std::max<int64_t>(0, s.own_waiting + 1 - s.free_rows));
  const double alone = 2 * s.step_seconds + static_cast<double>(s.prompt_tokens) * s.token_seconds;
  return std::max(computing, before / s.own_begun_per_second + alone);
}

}  // namespace quire
