// Sample: one row at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/sampling_math.h"

namespace quire::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Probabilities relative to the largest, in units of 2^-40: integer sums are the same in any order.
uint64_t Mass(float e) { return static_cast<uint64_t>(e * 0x1p40f); }

void ApplyPenalties(const SampleJob& job, float* logits) {
  const SampleRow& row = job.params;
  if (row.repetition_penalty == 1.0f && row.presence_penalty == 0.0f &&
      row.frequency_penalty == 0.0f) {
    return;
  }
  std::unordered_map<int32_t, int32_t> output_count;
  for (int32_t i = 0; i < job.num_known; ++i) {
    output_count[job.tokens[i]] += i >= job.num_prompt ? 1 : 0;
  }
  for (const auto& [token, count] : output_count) {
    float& l = logits[token];
    l = l > 0 ? l / row.repetition_penalty : l * row.repetition_penalty;
    if (count > 0) {
      l -= row.frequency_penalty * static_cast<float>(count);
      l -= row.presence_penalty;
    }
  }
}

// Smallest z that top_k and then top_p keep.
float Threshold(const SampleRow& row, std::vector<float> z) {
  std::sort(z.begin(), z.end(), std::greater<>());
  if (row.top_k > 0 && row.top_k < static_cast<int64_t>(z.size())) {
    const float kth = z[row.top_k - 1];
    while (z.back() < kth) z.pop_back();
  }
  if (row.top_p >= 1.0f) return z.back();
  uint64_t total = 0;
  for (float v : z) total += Mass(ExactExp(v));
  const uint64_t wanted = static_cast<uint64_t>(double{row.top_p} * static_cast<double>(total));
  uint64_t above = 0, sum = 0;
  float threshold = z[0];
  for (size_t i = 0; i < z.size(); ++i) {
    if (i > 0 && z[i] != z[i - 1]) above = sum;
    if (i > 0 && above >= wanted) break;
    threshold = z[i];
    sum += Mass(ExactExp(z[i]));
  }
  return threshold;
}

int32_t Draw(const SampleJob& job, const float* logits, int64_t vocab, float top) {
  const SampleRow& row = job.params;
  std::vector<float> z(vocab);
  for (int64_t i = 0; i < vocab; ++i) z[i] = (logits[i] - top) / row.temperature;
  const float threshold = row.top_k > 0 || row.top_p < 1.0f ? Threshold(row, z) : -kInfinity;
  int32_t best = -1;
  float best_score = -kInfinity;
  for (int64_t i = 0; i < vocab; ++i) {
    if (z[i] < threshold || z[i] == -kInfinity || ExactExp(z[i]) < row.min_p) continue;
    const float score = z[i] + GumbelNoise(row.seed, static_cast<uint32_t>(job.num_known),
                                           static_cast<uint32_t>(i));
    if (best < 0 || score > best_score) {
      best = static_cast<int32_t>(i);
      best_score = score;
    }
  }
  return best;
}

SampleResult SampleOne(const SampleJob& job, float* logits, int64_t vocab) {
  float raw_top = -kInfinity;
  for (int64_t i = 0; i < vocab; ++i) {
    if (!(logits[i] < kInfinity)) return SampleResult{.nonfinite = 1};
    raw_top = std::max(raw_top, logits[i]);
  }
  if (raw_top == -kInfinity) return SampleResult{.nonfinite = 1};
  uint64_t raw_mass = 0;
  for (int64_t i = 0; i < vocab; ++i) raw_mass += Mass(ExactExp(logits[i] - raw_top));
  const std::vector<float> raw(logits, logits + vocab);

  for (int32_t i = 0; i < job.num_bias; ++i) logits[job.bias[i].token] += job.bias[i].bias;
  for (int32_t i = 0; i < job.num_banned; ++i) logits[job.banned[i]] = -kInfinity;
  ApplyPenalties(job, logits);
  const float* top = std::max_element(logits, logits + vocab);
  if (*top == -kInfinity) return SampleResult{.nonfinite = 1};

  SampleResult result;
  result.token = job.params.temperature == 0.0f ? static_cast<int32_t>(top - logits)
                                                : Draw(job, logits, vocab, *top);
  result.logprob = raw[result.token] - raw_top -
                   static_cast<float>(std::log(static_cast<double>(raw_mass) * 0x1p-40));
  return result;
}

}  // namespace

void Sample(const SampleParams& p, ThreadPool& pool) {
  CHECK(p.logits.dtype == DType::kF32);
  pool.ParallelFor(p.logits.dim[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      p.results[r] = SampleOne(p.jobs[r], p.logits.row<float>(r), p.logits.dim[1]);
    }
  });
}

}  // namespace quire::cpu
