// Rotary frequencies: default, linear, llama3 and YaRN (arXiv 2309.00071), and the table made from
// them.
#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/check.h"

namespace quire {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Stretches long waves by the factor, keeps short ones, and interpolates between.
void ScaleLlama3(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const double context = static_cast<double>(rope.original_max_position);
  const auto factor = static_cast<float>(rope.factor);
  const auto longest_kept = static_cast<float>(context / rope.high_freq_factor);
  const auto shortest_stretched = static_cast<float>(context / rope.low_freq_factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& f : inv_freq) {
    const float wave = static_cast<float>(kTwoPi) / f;
    if (wave > shortest_stretched) {
      f /= factor;
    } else if (!(wave < longest_kept)) {
      const float smooth = (static_cast<float>(context) / wave - low) / span;
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
}

// The pair of dimensions that turns `rotations` times over the original context, as a real number.
double YarnDimension(const RopeConfig& rope, int32_t head_dim, double rotations) {
  const double context = static_cast<double>(rope.original_max_position);
  return head_dim * std::log(context / (rotations * kTwoPi)) / (2 * std::log(rope.theta));
}

// Keeps pairs below `low`, stretches pairs above `high` by the factor, with a linear ramp between.
void ScaleYarn(const RopeConfig& rope, int32_t head_dim, std::vector<float>& inv_freq) {
  double low = YarnDimension(rope, head_dim, rope.beta_fast);
  double high = YarnDimension(rope, head_dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  const auto start = static_cast<float>(low);
  const auto span = static_cast<float>(high - low);
  const auto factor = static_cast<float>(rope.factor);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - start) / span, 0.0f, 1.0f);
    const float kept = 1.0f - ramp;
    const float stretched = inv_freq[i] / factor;
    inv_freq[i] = stretched * (1.0f - kept) + inv_freq[i] * kept;
  }
}

// 0.1 m ln(s) + 1, the growth of the attention logits' scale with the context (YaRN, eq. 22).
double YarnScale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int32_t head_dim) {
  CHECK(head_dim >= 2 && head_dim % 2 == 0);
  std::vector<float> inv_freq(head_dim / 2);
  for (int32_t i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    inv_freq[i] = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
  }
  switch (rope.scaling) {
    case RopeScaling::kNone: break;
    case RopeScaling::kLinear:
      for (float& f : inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeScaling::kLlama3: ScaleLlama3(rope, inv_freq); break;
    case RopeScaling::kYarn: ScaleYarn(rope, head_dim, inv_freq); break;
  }
  return inv_freq;
}

float RopeAttentionScale(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kYarn) return 1.0f;
  if (rope.attention_factor.has_value()) return static_cast<float>(*rope.attention_factor);
  if (rope.mscale.has_value() && rope.mscale_all_dim.has_value()) {
    return static_cast<float>(YarnScale(rope.factor, *rope.mscale) /
                              YarnScale(rope.factor, *rope.mscale_all_dim));
  }
  return static_cast<float>(YarnScale(rope.factor, 1.0));
}

void FillRopeTable(const RopeConfig& rope, int32_t head_dim, int32_t num_positions,
                   std::span<float> table) {
  CHECK_EQ(table.size(), static_cast<size_t>(num_positions) * head_dim);
  const std::vector<float> inv_freq = RopeInverseFrequencies(rope, head_dim);
  const float scale = RopeAttentionScale(rope);
  const size_t half = inv_freq.size();
  float* row = table.data();
  for (int32_t position = 0; position < num_positions; ++position, row += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      // transformers rounds the angle to float32 too.
      const float angle = static_cast<float>(position) * inv_freq[i];
      row[i] = std::cos(angle) * scale;
      row[half + i] = std::sin(angle) * scale;
    }
  }
}

}  // namespace quire
