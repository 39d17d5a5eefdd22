// Times in two rounds: every candidate a few times, then the best ones longer. In both the
// candidates take turns, forward and back, and nothing waits for the device in between: clocks fall
// while it works, so one that always comes first looks faster than it is.
#include "kernels/cuda/matmul/algorithm_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/dtype.h"

namespace quire::cuda {
namespace {

// Bytes of the weights and their copies: ten times the second-level cache of a present device, so
// that the cache holds almost nothing of a copy when its turn comes again.
constexpr int64_t kRotatedBytes = 600 << 20;
// Bytes of the device left free for its other users.
constexpr int64_t kSpareBytes = 256 << 20;
constexpr size_t kAlgorithms = 16, kCuts = 6;
// Even, so that each candidate comes early as often as late.
constexpr size_t kFirstTurns = 4, kTurns = 4;
constexpr int kFirstRepeats = 1;
constexpr size_t kFinalists = 4;
constexpr float kTurnMicroseconds = 1500;
constexpr float kMaxRepeats = 100;

// Bytes of the device that may be taken; negative if too few are free.
int64_t FreeBytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free) - kSpareBytes;
}

// The time between two points of a stream.
class Lap {
 public:
  Lap() {
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
  }
  Lap(const Lap&) = delete;
  Lap& operator=(const Lap&) = delete;
  ~Lap() {
    CUDA_CHECK(cudaEventDestroy(begin_));
    CUDA_CHECK(cudaEventDestroy(end_));
  }
  void Begin(cudaStream_t stream) { CUDA_CHECK(cudaEventRecord(begin_, stream)); }
  void End(cudaStream_t stream) { CUDA_CHECK(cudaEventRecord(end_, stream)); }
  // Once the stream has passed both.
  float Microseconds() const {
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return ms * 1000;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The largest value of a type of activations as they are multiplied: 8-bit ones fill their range.
float LargestOf(DType dtype) {
  if (dtype == DType::kE4M3) return kE4M3Max;
  return dtype == DType::kI8 ? kI8Max : 1.0f;
}

}  // namespace

struct AlgorithmSearch::Candidate {
  Choice choice;
  bool works = true;
  float microseconds = 0;  // infinite if it does not work
};

AlgorithmSearch::AlgorithmSearch(const MatMulParams& p, const ProductMeans& means)
    : p_(p), means_(means) {
  RandomTokens();
  CopyWeights();
}

void* AlgorithmSearch::Allocate(int64_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, static_cast<size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // clears the error
    return nullptr;
  }
  allocated_.push_back(memory);
  return memory;
}

void AlgorithmSearch::RandomTokens() {
  const DType dtype = p_.x.dtype;
  // As far behind a multiple of 16 bytes as in service: algorithms are chosen for an alignment.
  const auto behind = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p_.x.data) % 16);
  const int64_t bytes =
      RoundUp<int64_t>(behind + BytesOf(dtype, p_.x.dim[0] * p_.x.row_stride), 16);
  if (FreeBytes() < bytes) return;
  void* const tokens = Allocate(bytes);
  if (tokens == nullptr) return;
  const int64_t elements = bytes / static_cast<int64_t>(SizeOf(dtype));
  FillUniform(
      {.out = TensorView(tokens, dtype, {elements}), .seed = 1, .amplitude = LargestOf(dtype)},
      means_.device);
  p_.x.data = static_cast<char*>(tokens) + behind;
}

void AlgorithmSearch::CopyWeights() {
  const MatMulParams& p = p_;
  // The last row of w may end at its last element, short of its stride.
  const int64_t bytes = BytesOf(p.w.dtype, (p.w.dim[0] - 1) * p.w.row_stride + p.w.dim[1]);
  const int64_t pitch = RoundUp<int64_t>(bytes, 256);
  const int64_t copies = std::min(CeilDiv(kRotatedBytes, bytes) - 1, FreeBytes() / pitch);
  products_.assign(1, p);
  if (copies <= 0) return;
  void* const memory = Allocate(copies * pitch);
  if (memory == nullptr) return;  // another user took it since it was counted
  for (int64_t i = 0; i < copies; ++i) {
    MatMulParams& product = products_.emplace_back(p);
    product.w.data = static_cast<char*>(memory) + i * pitch;
    CUDA_CHECK(cudaMemcpyAsync(product.w.data, p.w.data, static_cast<size_t>(bytes),
                               cudaMemcpyDeviceToDevice, means_.device.stream));
  }
}

AlgorithmSearch::~AlgorithmSearch() {
  CUDA_CHECK(cudaStreamSynchronize(means_.device.stream));
  for (void* const memory : allocated_) CUDA_CHECK(cudaFree(memory));
}

bool AlgorithmSearch::Repeat(const Candidate& candidate, int times) {
  for (int i = 0; i < times; ++i) {
    turn_ = (turn_ + 1) % products_.size();
    if (!Enqueue(products_[turn_], candidate.choice, means_)) return false;
  }
  return true;
}

void AlgorithmSearch::Time(std::vector<Candidate>& candidates, size_t turns, int repeats) {
  const size_t count = candidates.size();
  std::vector<Lap> laps(turns * count);
  for (size_t turn = 0; turn < turns; ++turn) {
    for (size_t place = 0; place < count; ++place) {
      const size_t i = turn % 2 == 0 ? place : count - 1 - place;
      Candidate& c = candidates[i];
      Lap& lap = laps[turn * count + i];
      c.works = c.works && Repeat(c, 1);  // loads its kernel, too
      if (!c.works) continue;
      lap.Begin(means_.device.stream);
      c.works = Repeat(c, repeats);
      lap.End(means_.device.stream);
    }
  }
  CUDA_CHECK(cudaStreamSynchronize(means_.device.stream));
  std::vector<float> times(turns);
  for (size_t i = 0; i < count; ++i) {
    candidates[i].microseconds = std::numeric_limits<float>::infinity();
    if (!candidates[i].works) continue;
    for (size_t turn = 0; turn < turns; ++turn) {
      times[turn] = laps[turn * count + i].Microseconds() / static_cast<float>(repeats);
    }
    std::sort(times.begin(), times.end());
    candidates[i].microseconds = (times[(turns - 1) / 2] + times[turns / 2]) / 2;
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
  Time(candidates, kFirstTurns, kFirstRepeats);
  std::stable_sort(candidates.begin(), candidates.end(), faster);
  CHECK(candidates[0].works);
  candidates.resize(std::min(candidates.size(), kFinalists));
  const float repeats = kTurnMicroseconds / candidates[0].microseconds;
  Time(candidates, kTurns, static_cast<int>(std::clamp(repeats, 1.0f, kMaxRepeats)));
  const Candidate& best = *std::min_element(candidates.begin(), candidates.end(), faster);
  Choice choice = best.choice;
  choice.microseconds = best.microseconds;
  return choice;
}

}  // namespace quire::cuda
