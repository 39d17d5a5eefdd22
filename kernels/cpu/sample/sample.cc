// Sample: rows are independent and split over the threads. sampling.h defines the draw by values
// and integer sums alone, so any way of selection gives the same tokens: here bins first, then the
// exact order within one bin.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/sample/logit_edits.h"
#include "kernels/futex.h"

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
  LogitEdits edits;
  std::vector<float> z, e, picked, raw;
  std::vector<std::pair<float, uint64_t>> surprises;  // of tokens, with their mass
};

// Waits for the row's late mask; false if it does not come.
bool AwaitMask(const SampleJob& job) {
  if (job.mask_for == nullptr) return true;
  const auto now_ns = [] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::nanoseconds(now).count();
  };
  auto& word = *reinterpret_cast<std::atomic<uint32_t>*>(job.mask_for);
  const int64_t end_ns = now_ns() + kMaskPatienceNs;
  uint32_t value = kMaskAwaited;
  if (word.compare_exchange_strong(value, kMaskSleeping)) value = kMaskSleeping;
  while (value == kMaskSleeping && now_ns() < end_ns) {
    FutexWait(word, kMaskSleeping, end_ns);
    value = word.load(std::memory_order_acquire);
  }
  return value == static_cast<uint32_t>(job.num_known);
}

class RowSampler {
 public:
  RowSampler(const VectorKernels& kernels, RowScratch& scratch)
      : kernels_(kernels),
        edits_(scratch.edits),
        z_(scratch.z),
        e_(scratch.e),
        picked_(scratch.picked),
        raw_(scratch.raw),
        surprises_(scratch.surprises) {}

  SampleResult Sample(const SampleJob& job, float* logits, int64_t vocab) {
    if (!AwaitMask(job)) return SampleResult{.nonfinite = SampleResult::kNoMask};
    if (job.kept == KeptLogits::kRaw) raw_.assign(logits, logits + vocab);
    const SampleResult result = Take(job, logits, vocab);
    if (job.kept == KeptLogits::kRaw) std::copy_n(raw_.data(), vocab, logits);
    return result;
  }

 private:
  SampleResult Take(const SampleJob& job, float* logits, int64_t vocab) {
    vocab_ = vocab;
    logits_ = logits;
    const RowStats raw = kernels_.row_stats(logits, vocab);
    if (raw.nonfinite) return SampleResult{.nonfinite = SampleResult::kUnsound};
    const uint64_t raw_mass = kernels_.exp_mass(logits, raw.top, vocab);
    const bool edited = edits_.Apply(job, logits, vocab);
    const RowStats stats = edited ? kernels_.row_stats(logits, vocab) : raw;
    if (stats.nonfinite) {
      const bool none =
          std::all_of(logits, logits + vocab, [](float l) { return l == -kInfinity; });
      return SampleResult{.nonfinite = none ? SampleResult::kNoToken : SampleResult::kUnsound};
    }
    SampleResult result;
    result.token = job.params.temperature == 0.0f
                       ? static_cast<int32_t>(kernels_.find(logits, stats.top, vocab))
                       : Draw(job, stats.top);
    result.logprob = edits_.Raw(result.token) - raw.top -
                     static_cast<float>(std::log(static_cast<double>(raw_mass) * 0x1p-40));
    const bool drew = job.params.temperature != 0.0f;
    if (job.kept == KeptLogits::kProcessed && drew) std::copy_n(z_.data(), vocab, logits);
    return result;
  }

  int32_t Draw(const SampleJob& job, float top) {
    const SampleRow& row = job.params;
    const auto position = static_cast<uint32_t>(job.num_known);
    z_.resize(vocab_);
    if (row.top_n_sigma > 0.0f) DropFar(top, row.top_n_sigma);
    float temperature = row.temperature;
    if (row.dynatemp_range > 0.0f) {
      kernels_.scale_logits(logits_, top, 1.0f, z_.data(), vocab_);
      temperature =
          DynamicTemperature(temperature, row.dynatemp_range, row.dynatemp_exponent, SumMasses());
    }
    kernels_.scale_logits(logits_, top, temperature, z_.data(), vocab_);
    float min_z = -kInfinity;
    if (row.top_k > 0 && row.top_k < vocab_) min_z = KthLargest(row.top_k);
    if (row.top_p < 1.0f) min_z = NucleusEdge(row.top_p, min_z);
    const bool typical = row.typical_p < 1.0f;
    const bool xtc = CoinFalls(row.seed, position, row.xtc_probability);
    const bool kept = job.kept == KeptLogits::kProcessed;
    if (typical || xtc || kept) KeepLikely(min_z, row.min_p);
    if (typical) KeepTypical(row.typical_p);
    if (xtc) DropTopChoices(row.xtc_threshold);
    const Drawn drawn = kernels_.draw(DrawRow{.z = z_.data(),
                                              .vocab = vocab_,
                                              .min_z = min_z,
                                              .min_p = row.min_p,
                                              .seed = row.seed,
                                              .position = position});
    CHECK_GE(drawn.token, 0);
    return drawn.token;
  }

  // top_n_sigma.
  void DropFar(float top, float top_n_sigma) {
    DistanceSums sums = {};
    for (int64_t i = 0; i < vocab_; ++i) {
      if (logits_[i] == -kInfinity) continue;
      const uint64_t distance = DistanceOf(top, logits_[i]);
      ++sums.count;
      sums.sum += distance;
      sums.squares += distance * distance;
    }
    const float farthest = FarthestKept(top_n_sigma, sums);
    for (int64_t i = 0; i < vocab_; ++i) {
      if (top - logits_[i] > farthest) logits_[i] = -kInfinity;
    }
  }

  // Over the tokens with z_ above -infinity; e_ becomes their exponentials.
  MassSums SumMasses() {
    e_.resize(vocab_);
    kernels_.exp(z_.data(), e_.data(), vocab_);
    MassSums sums = {};
    for (int64_t i = 0; i < vocab_; ++i) {
      sums.count += z_[i] > -kInfinity ? 1 : 0;
      sums.mass += Mass(e_[i]);
      sums.moment += MomentOf(z_[i], e_[i]);
    }
    return sums;
  }

  // From here on a dropped token has z_ = -infinity.
  void KeepLikely(float min_z, float min_p) {
    e_.resize(vocab_);
    kernels_.exp(z_.data(), e_.data(), vocab_);
    for (int64_t i = 0; i < vocab_; ++i) {
      if (z_[i] < min_z || e_[i] < min_p) z_[i] = -kInfinity;
    }
  }

  void KeepTypical(float typical_p) {
    const MassSums sums = SumMasses();
    const float mean = MeanDistance(sums);
    surprises_.clear();
    for (int64_t i = 0; i < vocab_; ++i) {
      if (z_[i] > -kInfinity) surprises_.emplace_back(std::fabs(z_[i] + mean), Mass(e_[i]));
    }
    std::sort(surprises_.begin(), surprises_.end());
    const uint64_t wanted = MassOfShare(typical_p, sums.mass);
    uint64_t sum = 0;
    float edge = 0.0f;
    for (const auto& [surprise, mass] : surprises_) {
      edge = surprise;
      sum += mass;
      if (sum >= wanted) break;
    }
    for (float& z : z_) z = std::fabs(z + mean) > edge ? -kInfinity : z;
  }

  void DropTopChoices(float threshold) {
    const double wanted = static_cast<double>(threshold) * static_cast<double>(SumMasses().mass);
    float least = kInfinity;
    for (int64_t i = 0; i < vocab_; ++i) {
      if (static_cast<double>(Mass(e_[i])) >= wanted) least = std::min(least, z_[i]);
    }
    for (float& z : z_) z = z > least ? -kInfinity : z;
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
    const uint64_t wanted = MassOfShare(top_p, total);
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
  LogitEdits& edits_;
  std::vector<float>&z_, &e_, &picked_, &raw_;
  std::vector<std::pair<float, uint64_t>>& surprises_;
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
