// Score: rows are independent and split over the threads.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

struct Ranked {
  float logit;
  int32_t token;
};

bool ComesBefore(const Ranked& a, const Ranked& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The first `count` possible tokens in order.
void FindTop(const float* logits, int64_t vocab, int32_t count, std::vector<Ranked>& top) {
  top.clear();
  float least = -std::numeric_limits<float>::infinity();  // equals come too late to be taken
  for (int64_t i = 0; count > 0 && i < vocab; ++i) {
    if (!(logits[i] > least)) continue;
    const Ranked ranked{logits[i], static_cast<int32_t>(i)};
    if (static_cast<int32_t>(top.size()) == count) top.pop_back();
    top.insert(std::ranges::upper_bound(top, ranked, ComesBefore), ranked);
    if (static_cast<int32_t>(top.size()) == count) least = top.back().logit;
  }
}

uint32_t RankOf(const float* logits, int64_t vocab, int32_t token) {
  const float mine = logits[token];
  uint32_t before = 0;
  for (int64_t i = 0; i < vocab; ++i) before += logits[i] > mine;
  for (int64_t i = 0; i < token; ++i) before += logits[i] == mine;
  return before + 1;
}

void ScoreRow(const ScoreJob& job, const float* logits, int64_t vocab,
              const VectorKernels& kernels) {
  thread_local std::vector<Ranked> top;
  uint32_t* out = job.out;
  const RowStats stats = kernels.row_stats(logits, vocab);
  if (stats.nonfinite) {
    std::fill_n(out, ScoreWords(job.num_top, job.num_ids), 0u);
    return;
  }
  const auto mass = static_cast<double>(kernels.exp_mass(logits, stats.top, vocab));
  const auto log_mass = static_cast<float>(std::log(mass * 0x1p-40));
  const auto logprob = [&](int32_t token) {
    CHECK(token >= 0 && token < vocab);
    return std::bit_cast<uint32_t>(logits[token] - stats.top - log_mass);
  };
  const int32_t token = *job.token;
  *out++ = static_cast<uint32_t>(token);
  *out++ = logprob(token);
  *out++ = RankOf(logits, vocab, token);
  FindTop(logits, vocab, job.num_top, top);
  top.resize(static_cast<size_t>(job.num_top), {0.0f, -1});
  for (const Ranked& ranked : top) {
    *out++ = static_cast<uint32_t>(ranked.token);
    *out++ = ranked.token < 0 ? 0 : logprob(ranked.token);
  }
  for (int32_t i = 0; i < job.num_ids; ++i) *out++ = logprob(job.ids[i]);
}

}  // namespace

void Score(const ScoreParams& p, const Cores& cores) {
  CHECK(p.logits.dtype == DType::kF32);
  cores.pool.ParallelFor(p.num_jobs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ScoreJob& job = p.jobs[i];
      CHECK(job.row >= 0 && job.row < p.logits.dim[0]);
      ScoreRow(job, p.logits.row<float>(job.row), p.logits.dim[1], cores.kernels);
    }
  });
}

}  // namespace quire::cpu
