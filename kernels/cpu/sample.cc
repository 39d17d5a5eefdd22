// Sample: rows are independent and split over the threads. sampling.h defines the draw by values
// and integer sums alone, so any way of selection gives the same tokens: here bins first, then the
// exact order within one bin.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Bins of scaled logits z <= 0: 32 to the unit; the last bin is open.
constexpr int32_t kBins = 1024;
int32_t BinOf(float z) { return static_cast<int32_t>(std::min(-z, 31.97f) * 32.0f); }

// The mass of a token: its probability relative to the most likely token's, in units of 2^-40.
uint64_t Mass(float e) { return static_cast<uint64_t>(static_cast<int64_t>(e * 0x1p40f)); }

// A thread's buffers, kept between rows so that large vocabularies cost no allocation.
struct RowScratch {
  std::vector<std::pair<int32_t, float>> touched;
  std::vector<int32_t> counts;  // all zero between rows
  std::vector<float> z, e, picked;
};

class RowSampler {
 public:
  RowSampler(const VectorKernels& kernels, RowScratch& scratch)
      : kernels_(kernels),
        touched_(scratch.touched),
        counts_(scratch.counts),
        z_(scratch.z),
        e_(scratch.e),
        picked_(scratch.picked) {}

  SampleResult Sample(const SampleJob& job, float* logits, int64_t vocab) {
    vocab_ = vocab;
    logits_ = logits;
    touched_.clear();
    const RowStats raw = kernels_.row_stats(logits, vocab);
    if (raw.nonfinite) return SampleResult{.nonfinite = 1};
    const uint64_t raw_mass = kernels_.exp_mass(logits, raw.top, vocab);
    Modify(job);
    const RowStats stats = touched_.empty() ? raw : kernels_.row_stats(logits, vocab);
    if (stats.nonfinite) return SampleResult{.nonfinite = 1};
    SampleResult result;
    result.token = job.params.temperature == 0.0f
                       ? static_cast<int32_t>(kernels_.find(logits, stats.top, vocab))
                       : Draw(job, stats.top);
    result.logprob = RawLogit(result.token) - raw.top -
                     static_cast<float>(std::log(static_cast<double>(raw_mass) * 0x1p-40));
    return result;
  }

 private:
  float& Touch(int32_t token) {
    CHECK(token >= 0 && token < vocab_);
    touched_.emplace_back(token, logits_[token]);
    return logits_[token];
  }

  // The logit before any modification: the first record of a token has it.
  float RawLogit(int32_t token) const {
    for (const auto& [touched, raw] : touched_) {
      if (touched == token) return raw;
    }
    return logits_[token];
  }

  void Modify(const SampleJob& job) {
    for (int32_t i = 0; i < job.num_bias; ++i) Touch(job.bias[i].token) += job.bias[i].bias;
    for (int32_t i = 0; i < job.num_banned; ++i) Touch(job.banned[i]) = -kInfinity;
    const SampleRow& row = job.params;
    if (row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
        row.frequency_penalty != 0.0f) {
      Penalise(job);
    }
  }

  void Penalise(const SampleJob& job) {
    // counts_[token]: 2 for each occurrence in the output, plus 1 if the token occurs at all.
    if (static_cast<int64_t>(counts_.size()) < vocab_) counts_.resize(vocab_, 0);
    for (int32_t i = 0; i < job.num_known; ++i) {
      CHECK(job.tokens[i] >= 0 && job.tokens[i] < vocab_);
      int32_t& count = counts_[job.tokens[i]];
      count = (count + (i >= job.num_prompt ? 2 : 0)) | 1;
    }
    for (int32_t i = 0; i < job.num_known; ++i) {
      const int32_t count = std::exchange(counts_[job.tokens[i]], 0);
      if (count == 0) continue;
      float& logit = Touch(job.tokens[i]);
      const float penalty = job.params.repetition_penalty;
      logit = logit > 0.0f ? logit / penalty : logit * penalty;
      if (count < 2) continue;
      logit -= job.params.frequency_penalty * static_cast<float>(count / 2);
      logit -= job.params.presence_penalty;
    }
  }

  int32_t Draw(const SampleJob& job, float top) {
    const SampleRow& row = job.params;
    z_.resize(vocab_);
    kernels_.scale_logits(logits_, top, row.temperature, z_.data(), vocab_);
    float min_z = -kInfinity;
    if (row.top_k > 0 && row.top_k < vocab_) min_z = KthLargest(row.top_k);
    if (row.top_p < 1.0f) min_z = NucleusEdge(row.top_p, min_z);
    const Drawn drawn = kernels_.draw(DrawRow{.z = z_.data(),
                                              .vocab = vocab_,
                                              .min_z = min_z,
                                              .min_p = row.min_p,
                                              .seed = row.seed,
                                              .position = static_cast<uint32_t>(job.num_known)});
    CHECK_GE(drawn.token, 0);
    return drawn.token;
  }

  float KthLargest(int64_t k) {
    std::vector<int64_t> count(kBins, 0);
    for (float z : z_) ++count[BinOf(z)];
    int32_t bin = 0;
    for (; count[bin] < k; ++bin) k -= count[bin];
    Collect(bin, -kInfinity);
    std::nth_element(picked_.begin(), picked_.begin() + (k - 1), picked_.end(), std::greater<>());
    return picked_[k - 1];
  }

  // The smallest z >= min_z such that the tokens above it hold less than top_p of the mass.
  float NucleusEdge(float top_p, float min_z) {
    std::vector<uint64_t> mass(kBins, 0);
    e_.resize(vocab_);
    kernels_.exp(z_.data(), e_.data(), vocab_);
    uint64_t total = 0;
    for (int64_t i = 0; i < vocab_; ++i) {
      if (z_[i] < min_z) continue;
      const uint64_t m = Mass(e_[i]);
      mass[BinOf(z_[i])] += m;
      total += m;
    }
    const uint64_t wanted = std::max<uint64_t>(
        1, static_cast<uint64_t>(static_cast<double>(top_p) * static_cast<double>(total)));
    uint64_t above = 0;
    int32_t bin = 0;
    for (; above + mass[bin] < wanted; ++bin) above += mass[bin];
    Collect(bin, min_z);
    std::sort(picked_.begin(), picked_.end(), std::greater<>());
    e_.resize(picked_.size());
    kernels_.exp(picked_.data(), e_.data(), static_cast<int64_t>(picked_.size()));
    uint64_t sum = above;
    float edge = picked_[0];
    for (size_t i = 0; i < picked_.size(); ++i) {
      if (picked_[i] != edge) {  // keep all tokens of one value or none
        if (sum >= wanted) break;
        edge = picked_[i];
      }
      sum += Mass(e_[i]);
    }
    return edge;
  }

  // picked_ = the z of one bin that are at least min_z.
  void Collect(int32_t bin, float min_z) {
    picked_.clear();
    for (float z : z_) {
      if (BinOf(z) == bin && z >= min_z) picked_.push_back(z);
    }
  }

  const VectorKernels& kernels_;
  int64_t vocab_ = 0;
  float* logits_ = nullptr;
  std::vector<std::pair<int32_t, float>>& touched_;
  std::vector<int32_t>& counts_;
  std::vector<float>&z_, &e_, &picked_;
};

}  // namespace

void Sample(const SampleParams& p, const Cores& cores) {
  CHECK(p.logits.dtype == DType::kF32);
  cores.pool.ParallelFor(p.logits.dim[0], 1, [&](int64_t begin, int64_t end) {
    thread_local RowScratch scratch;
    RowSampler sampler(cores.kernels, scratch);
    for (int64_t r = begin; r < end; ++r) {
      p.results[r] = sampler.Sample(p.jobs[r], p.logits.row<float>(r), p.logits.dim[1]);
      if (p.jobs[r].drawn != nullptr) *p.jobs[r].drawn = p.results[r].token;
    }
  });
}

}  // namespace quire::cpu
