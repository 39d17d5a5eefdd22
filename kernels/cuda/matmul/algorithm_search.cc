// Times in two rounds: every candidate a few times, then the best candidates in turns.
#include "kernels/cuda/matmul/algorithm_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/check.h"

namespace quire::cuda {
namespace {

// Bytes of the weights and their copies: ten times the second-level cache of a present device, so
// that the cache holds almost nothing of a copy when its turn comes again.
constexpr int64_t kRotatedBytes = 600 << 20;
// Bytes of the device left free for its other users.
constexpr int64_t kSpareBytes = 256 << 20;
constexpr size_t kAlgorithms = 16, kCuts = 6;
constexpr int kFirstRepeats = 3;
// Finalists run in turns, so that all of them see the same clocks. The median turn counts.
constexpr size_t kFinalists = 3, kTurns = 5;
constexpr float kTurnMicroseconds = 1500;
constexpr float kMaxRepeats = 100;

}  // namespace

struct AlgorithmSearch::Candidate {
  Choice choice;
  cudaEvent_t begin = nullptr, end = nullptr;
  bool works = false;
  float microseconds = 0;  // infinite if it does not work
};

AlgorithmSearch::AlgorithmSearch(const MatMulParams& p, const ProductMeans& means)
    : p_(p), means_(means) {
  // The last row of w may end at its last element, short of its stride.
  const int64_t bytes = BytesOf(p.w.dtype, (p.w.dim[0] - 1) * p.w.row_stride + p.w.dim[1]);
  const int64_t pitch = RoundUp<int64_t>(bytes, 256);
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const int64_t room = (static_cast<int64_t>(free) - kSpareBytes) / pitch;
  const int64_t copies = std::min(CeilDiv(kRotatedBytes, bytes) - 1, room);
  products_.assign(1, p);
  if (copies <= 0) return;
  if (cudaMalloc(&scratch_, static_cast<size_t>(copies * pitch)) != cudaSuccess) {
    cudaGetLastError();  // clears the error: another user took memory since it was counted
    scratch_ = nullptr;
    return;
  }
  for (int64_t i = 0; i < copies; ++i) {
    MatMulParams& product = products_.emplace_back(p);
    product.w.data = static_cast<char*>(scratch_) + i * pitch;
    CUDA_CHECK(cudaMemcpyAsync(product.w.data, p.w.data, static_cast<size_t>(bytes),
                               cudaMemcpyDeviceToDevice, means.device.stream));
  }
}

AlgorithmSearch::~AlgorithmSearch() {
  CUDA_CHECK(cudaStreamSynchronize(means_.device.stream));
  CUDA_CHECK(cudaFree(scratch_));
}

bool AlgorithmSearch::Repeat(const Candidate& candidate, int times) {
  for (int i = 0; i < times; ++i) {
    turn_ = (turn_ + 1) % products_.size();
    if (!Enqueue(products_[turn_], candidate.choice, means_)) return false;
  }
  return true;
}

void AlgorithmSearch::Time(std::vector<Candidate>& candidates, int times) {
  for (Candidate& c : candidates) {
    CUDA_CHECK(cudaEventCreate(&c.begin));
    CUDA_CHECK(cudaEventCreate(&c.end));
    c.works = Repeat(c, 1);  // loads its kernel, too
    CUDA_CHECK(cudaEventRecord(c.begin, means_.device.stream));
    if (c.works) Repeat(c, times);
    CUDA_CHECK(cudaEventRecord(c.end, means_.device.stream));
  }
  CUDA_CHECK(cudaStreamSynchronize(means_.device.stream));
  for (Candidate& c : candidates) {
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, c.begin, c.end));
    c.microseconds =
        c.works ? ms * 1000 / static_cast<float>(times) : std::numeric_limits<float>::infinity();
    CUDA_CHECK(cudaEventDestroy(c.begin));
    CUDA_CHECK(cudaEventDestroy(c.end));
  }
}

Choice AlgorithmSearch::Fastest(int64_t tokens) {
  for (MatMulParams& product : products_) {
    product.x = p_.x.Rows(0, tokens);
    product.out = p_.out.Rows(0, tokens);
  }
  std::vector<Candidate> candidates;
  for (const Choice& choice : PromisingChoices(products_[0], means_, kAlgorithms, kCuts)) {
    candidates.push_back({.choice = choice});
  }
  const auto faster = [](const Candidate& a, const Candidate& b) {
    return a.microseconds < b.microseconds;
  };
  Time(candidates, kFirstRepeats);
  std::stable_sort(candidates.begin(), candidates.end(), faster);
  CHECK(candidates[0].works);
  candidates.resize(std::min(candidates.size(), kFinalists));
  const int repeats = static_cast<int>(
      std::clamp(kTurnMicroseconds / candidates[0].microseconds, 1.0f, kMaxRepeats));
  std::vector<std::array<float, kTurns>> times(candidates.size());
  for (size_t turn = 0; turn < kTurns; ++turn) {
    Time(candidates, repeats);
    for (size_t i = 0; i < candidates.size(); ++i) times[i][turn] = candidates[i].microseconds;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    candidates[i].microseconds = times[i][kTurns / 2];
  }
  const Candidate& best = *std::min_element(candidates.begin(), candidates.end(), faster);
  Choice choice = best.choice;
  choice.microseconds = best.microseconds;
  return choice;
}

}  // namespace quire::cuda
