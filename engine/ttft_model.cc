// A line through the steps of late, and the work ahead of a request.
#include "engine/ttft_model.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// The weight of a step, after one more: some two hundred steps count.
constexpr double kDecay = 0.995;

}  // namespace

void TtftModel::AddStep(int64_t prompt_tokens, double seconds) {
  if (seconds <= 0) return;
  prompt_steps_ += prompt_tokens > 0;
  const double x = static_cast<double>(prompt_tokens);
  for (double* sum : {&n_, &x_, &y_, &xx_, &xy_}) *sum *= kDecay;
  n_ += 1;
  x_ += x;
  y_ += seconds;
  xx_ += x * x;
  xy_ += x * seconds;
}

TtftModel::Line TtftModel::Fit() const {
  const double mean_x = x_ / n_, mean_y = y_ / n_;
  const double variance = xx_ / n_ - mean_x * mean_x;
  const double most = mean_y / std::max(mean_x, 1e-9);  // all time is for tokens
  // Steps of about one size do not tell the two parts apart: then all time is for tokens, and a
  // short prompt is predicted too early rather than too late.
  if (variance < 0.01 * mean_x * mean_x) return {.step_seconds = 0, .token_seconds = most};
  const double slope = (xy_ / n_ - mean_x * mean_y) / variance;
  const double token_seconds = std::clamp(slope, 0.0, most);
  return {.step_seconds = std::max(0.0, mean_y - token_seconds * mean_x),
          .token_seconds = token_seconds};
}

std::optional<double> TtftModel::Predict(const TtftSituation& s) const {
  if (prompt_steps_ < kMinSteps) return std::nullopt;
  const Line line = Fit();
  const double own = static_cast<double>(s.prompt_tokens + s.own_tokens);
  // Other tenants get tokens in the ratio of the weights until its own are computed, or until they
  // have none left.
  const double others =
      std::min(static_cast<double>(s.other_tokens), own * (1 - s.share) / s.share);
  // The step in flight ends first.
  const double steps = 1 + std::max(1.0, std::ceil((own + others) / s.step_tokens));
  const double computing = steps * line.step_seconds + (own + others) * line.token_seconds;
  if (!s.waits_for_row) return computing;
  if (s.own_begun_per_second <= 0) return std::nullopt;
  const double before = static_cast<double>(std::max<int64_t>(0, s.own_waiting + 1 - s.free_rows));
  const double alone =
      2 * line.step_seconds + static_cast<double>(s.prompt_tokens) * line.token_seconds;
  return std::max(computing, before / s.own_begun_per_second + alone);
}

}  // namespace quire
