// Sample: microseconds per call in a graph, by rows, vocabulary and setting, over logits larger
// than the cache, next to the time of one pass over the logits at the copy rate measured in this
// run. Compares results with the CPU backend's before it times. Prints one JSON object per line.
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "bench/gpu/graph_timer.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/device/cuda_kernels.h"

namespace quire::gpu {
namespace {

struct Setting {
  const char* name;
  SampleRow params;
};
const Setting kSettings[] = {
    {"greedy", {.temperature = 0}},
    {"temperature", {.temperature = 0.8f}},
    {"top_p", {.temperature = 1.0f, .top_p = 0.95f}},
    {"top_k_p", {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f}},
    {"top_p_min_p_penalties",
     {.temperature = 0.8f, .top_p = 0.9f, .min_p = 0.01f, .repetition_penalty = 1.1f}},
    {"top_p_dry", {.temperature = 0.8f, .top_p = 0.9f, .dry_multiplier = 0.8f}},
    {"top_n_sigma_dynatemp", {.temperature = 1.0f, .top_n_sigma = 1.5f, .dynatemp_range = 0.5f}},
    {"top_p_typical_xtc",
     {.temperature = 0.8f, .top_p = 0.95f, .typical_p = 0.9f, .xtc_probability = 0.5f}},
};

// Rows as models give them: a few tokens lead a broad rest, or all tokens are nearly equal.
enum class Shape { kPeaked, kFlat };

class Bench {
 public:
  explicit Bench(int64_t vocab) : vocab_(vocab) {
    copies_ = std::max<int64_t>((int64_t{256} << 20) / (vocab * 4), 2 * kMaxRows);
    copy_rate_ = timer_.CopyRate();
    CUDA_CHECK(cudaMalloc(&logits_, static_cast<size_t>(copies_ * vocab) * 4));
    CUDA_CHECK(cudaMalloc(&jobs_, kMaxRows * sizeof(SampleJob)));
    CUDA_CHECK(cudaMalloc(&results_, kMaxRows * sizeof(SampleResult)));
    CUDA_CHECK(cudaMalloc(&tokens_, kKnown * sizeof(int32_t)));
    for (int i = 0; i < kKnown; ++i) known_.push_back(static_cast<int32_t>(i * 7 % vocab));
    CUDA_CHECK(
        cudaMemcpy(tokens_, known_.data(), kKnown * sizeof(int32_t), cudaMemcpyHostToDevice));
  }
  ~Bench() {
    for (void* data : {static_cast<void*>(logits_), static_cast<void*>(jobs_),
                       static_cast<void*>(results_), static_cast<void*>(tokens_)}) {
      CUDA_CHECK(cudaFree(data));
    }
  }

  void Fill(Shape shape) {
    std::minstd_rand random(3);
    std::normal_distribution<float> normal(0, shape == Shape::kFlat ? 0.3f : 2.5f);
    host_.resize(static_cast<size_t>(kDistinct * vocab_));
    for (float& l : host_) l = normal(random);
    if (shape == Shape::kPeaked) {
      for (int64_t r = 0; r < kDistinct; ++r) {
        for (int i = 0; i < 40; ++i) {
          host_[static_cast<size_t>(r * vocab_ + static_cast<int64_t>(random()) % vocab_)] =
              18.0f - 0.25f * static_cast<float>(i);
        }
      }
    }
    for (int64_t r = 0; r < copies_; r += kDistinct) {
      const int64_t rows = std::min<int64_t>(kDistinct, copies_ - r);
      CUDA_CHECK(cudaMemcpy(logits_ + r * vocab_, host_.data(),
                            static_cast<size_t>(rows * vocab_) * 4, cudaMemcpyHostToDevice));
    }
  }

  // False if a token is not the CPU's.
  bool Run(const Setting& setting, Shape shape, int64_t rows) {
    std::vector<SampleJob> jobs(static_cast<size_t>(rows));
    for (size_t r = 0; r < jobs.size(); ++r) {
      jobs[r].params = setting.params;
      jobs[r].params.seed = r * 77;
      jobs[r].tokens = tokens_;
      jobs[r].num_prompt = kKnown / 2;
      jobs[r].num_known = kKnown;
    }
    CUDA_CHECK(
        cudaMemcpy(jobs_, jobs.data(), jobs.size() * sizeof(SampleJob), cudaMemcpyHostToDevice));
    if (!Right(jobs)) {
      std::fprintf(stderr, "%s of %ld: wrong token: not timed\n", setting.name,
                   static_cast<long>(vocab_));
      return false;
    }
    const int64_t places = copies_ / rows;
    const double us = timer_.Microseconds(rows <= 16 ? 100 : 20,
                                          [&](int i) { Enqueue(i % places * rows, rows); });
    const double floor = static_cast<double>(rows * vocab_) * 4 / copy_rate_ * 1e6;
    std::printf(
        "{\"what\": \"sample\", \"setting\": \"%s\", \"logits\": \"%s\", \"vocab\": %ld, \"rows\": "
        "%ld, \"us\": %.2f, \"floor_us\": %.2f, \"fraction\": %.3f}\n",
        setting.name, shape == Shape::kFlat ? "flat" : "peaked", static_cast<long>(vocab_),
        static_cast<long>(rows), us, floor, floor / us);
    return true;
  }

 private:
  static constexpr int64_t kMaxRows = 256, kDistinct = 16;
  static constexpr int kKnown = 2000;

  void Enqueue(int64_t first, int64_t rows) {
    cuda::Sample({.logits = TensorView(logits_ + first * vocab_, DType::kF32, {rows, vocab_}),
                  .jobs = jobs_,
                  .results = results_},
                 timer_.device());
  }
  bool Right(std::vector<SampleJob> jobs) {
    static const std::unique_ptr<Backend> cpu = std::move(CreateCpuBackends(1, 0)[0]);
    const auto rows = std::min<int64_t>(static_cast<int64_t>(jobs.size()), kDistinct);
    Enqueue(0, static_cast<int64_t>(jobs.size()));
    CUDA_CHECK(cudaDeviceSynchronize());
    std::vector<SampleResult> got(static_cast<size_t>(rows)), expected(got.size());
    CUDA_CHECK(cudaMemcpy(got.data(), results_, got.size() * sizeof(SampleResult),
                          cudaMemcpyDeviceToHost));
    std::vector<float> scratch(host_.begin(), host_.begin() + rows * vocab_);
    for (SampleJob& job : jobs) job.tokens = known_.data();
    cpu->Sample({.logits = TensorView(scratch.data(), DType::kF32, {rows, vocab_}),
                 .jobs = jobs.data(),
                 .results = expected.data()});
    for (size_t r = 0; r < got.size(); ++r) {
      if (got[r].token != expected[r].token || got[r].nonfinite != expected[r].nonfinite) {
        return false;
      }
    }
    return true;
  }

  GraphTimer timer_;
  const int64_t vocab_;
  int64_t copies_ = 0;
  double copy_rate_ = 0;
  float* logits_ = nullptr;
  SampleJob* jobs_ = nullptr;
  SampleResult* results_ = nullptr;
  int32_t* tokens_ = nullptr;
  std::vector<int32_t> known_;
  std::vector<float> host_;
};

}  // namespace
}  // namespace quire::gpu

int main() {
  using quire::gpu::Shape;
  for (int64_t vocab : {32000, 128256, 151936}) {
    quire::gpu::Bench bench(vocab);
    for (Shape shape : {Shape::kPeaked, Shape::kFlat}) {
      bench.Fill(shape);
      for (const auto& setting : quire::gpu::kSettings) {
        for (int64_t rows : {1, 8, 64, 256}) {
          if (!bench.Run(setting, shape, rows)) return 1;
        }
      }
    }
  }
  return 0;
}
