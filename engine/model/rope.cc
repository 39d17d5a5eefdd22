// Rotary frequencies: default, linear, llama3, YaRN (arXiv 2309.00071), dynamic NTK and longrope
// (arXiv 2402.13753), and the table made from them.
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

// The base that stretches the longest wave by as much as the context grew (NTK-aware scaling).
double DynamicBase(const RopeConfig& rope, int32_t rotary_dim, int32_t num_positions) {
  const auto original = static_cast<double>(rope.original_max_position);
  const double length = std::max<double>(num_positions, original);
  const double growth = rope.factor * length / original - (rope.factor - 1.0);
  return rope.theta * std::pow(growth, rotary_dim / (rotary_dim - 2.0));
}

// 0.1 m ln(s) + 1, the growth of the attention logits' scale with the context (YaRN, eq. 22).
double YarnScale(double factor, double m) {
  return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int32_t rotary_dim,
                                          int32_t num_positions) {
  CHECK(rotary_dim >= 2 && rotary_dim % 2 == 0);
  const bool dynamic = rope.scaling == RopeScaling::kDynamic;
  const auto base =
      static_cast<float>(dynamic ? DynamicBase(rope, rotary_dim, num_positions) : rope.theta);
  const bool is_long = num_positions > rope.original_max_position;
  const std::vector<float>& stretch = is_long ? rope.long_factor : rope.short_factor;
  std::vector<float> inv_freq(rotary_dim / 2);
  for (int32_t i = 0; i < rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    const float period = std::pow(base, exponent);
    inv_freq[i] = 1.0f / (rope.scaling == RopeScaling::kLongRope ? stretch[i] * period : period);
  }
  switch (rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamic:
    case RopeScaling::kLongRope: break;
    case RopeScaling::kLinear:
      for (float& f : inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeScaling::kLlama3: ScaleLlama3(rope, inv_freq); break;
    case RopeScaling::kYarn: ScaleYarn(rope, rotary_dim, inv_freq); break;
  }
  return inv_freq;
}

float RopeAttentionScale(const RopeConfig& rope) {
  const bool is_long = rope.scaling == RopeScaling::kLongRope;
  if (rope.scaling != RopeScaling::kYarn && !is_long) return 1.0f;
  if (rope.attention_factor.has_value()) return static_cast<float>(*rope.attention_factor);
  if (is_long) {
    if (rope.factor <= 1.0) return 1.0f;
    const auto original = static_cast<double>(rope.original_max_position);
    return static_cast<float>(std::sqrt(1.0 + std::log(rope.factor) / std::log(original)));
  }
  if (rope.mscale.has_value() && rope.mscale_all_dim.has_value()) {
    return static_cast<float>(rope.attn_factor * YarnScale(rope.factor, *rope.mscale) /
                              YarnScale(rope.factor, *rope.mscale_all_dim));
  }
  return static_cast<float>(rope.attn_factor * YarnScale(rope.factor, 1.0));
}

std::vector<int32_t> RotationOrder(const RopeConfig& rope, int32_t head_dim) {
  const int32_t rotary_dim = rope.rotary_dim == 0 ? head_dim : rope.rotary_dim;
  if (rotary_dim == head_dim && !rope.interleaved) return {};
  const int32_t pairs = rotary_dim / 2, half = head_dim / 2;
  std::vector<int32_t> order(head_dim);
  for (int32_t i = 0; i < half; ++i) {
    if (i >= pairs) {  // does not rotate: any partner will do
      order[i] = rotary_dim + (i - pairs);
      order[half + i] = half + i;
    } else {
      order[i] = rope.interleaved ? 2 * i : i;
      order[half + i] = rope.interleaved ? 2 * i + 1 : pairs + i;
    }
  }
  return order;
}

void FillIdentityTable(int32_t head_dim, int32_t num_positions, std::span<float> table) {
  CHECK_EQ(table.size(), static_cast<size_t>(num_positions) * head_dim);
  float* row = table.data();
  for (int32_t position = 0; position < num_positions; ++position, row += head_dim) {
    std::fill(row, row + head_dim / 2, 1.0f);
    std::fill(row + head_dim / 2, row + head_dim, 0.0f);
  }
}

void FillRopeTable(const RopeConfig& rope, int32_t head_dim, int32_t num_positions,
                   std::span<float> table) {
  const int32_t rotary_dim = rope.rotary_dim == 0 ? head_dim : rope.rotary_dim;
  if (rotary_dim < head_dim) FillIdentityTable(head_dim, num_positions, table);
  CHECK_EQ(table.size(), static_cast<size_t>(num_positions) * head_dim);
  const std::vector<float> inv_freq = RopeInverseFrequencies(rope, rotary_dim, num_positions);
  const float scale = RopeAttentionScale(rope);
  const size_t half = static_cast<size_t>(head_dim) / 2;
  float* row = table.data();
  for (int32_t position = 0; position < num_positions; ++position, row += head_dim) {
    for (size_t i = 0; i < inv_freq.size(); ++i) {
      // transformers rounds the angle to float32 too.
      const float angle = static_cast<float>(position) * inv_freq[i];
      row[i] = std::cos(angle) * scale;
      row[half + i] = std::sin(angle) * scale;
    }
  }
}

}  // namespace quire
