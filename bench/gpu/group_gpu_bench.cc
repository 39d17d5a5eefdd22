// Collectives between GPUs in captured graphs: each way to sum over the ranks with the norm behind
// it, and NCCL beside it; rows of logits and draws. Prints one JSON object per line.
//
//   group_gpu_bench     one rank a GPU, of 2, 4 or 8 GPUs
#include <cstdio>

#include "bench/gpu/graph_timer.h"
#include "kernels/cuda/group/communicator.h"
#include "tests/gpu/forked_ranks.h"

namespace quire::gpu {
namespace {

using cuda::Communicator;
using cuda::SumMethod;

constexpr int32_t kWidth = 8192;
constexpr int32_t kMaxRows = 256;
constexpr int kCalls = 40;

const char* Name(SumMethod method) {
  switch (method) {
    case SumMethod::kOneShot: return "one-shot";
    case SumMethod::kTwoShot: return "two-shot";
    default: return "nccl";
  }
}

struct Bench {
  const RankPlace& place;
  GraphTimer timer;
  char* memory = nullptr;

  explicit Bench(const RankPlace& place_in) : place(place_in) {
    CUDA_CHECK(cudaMalloc(&memory, size_t{512} << 20));
    CUDA_CHECK(cudaMemset(memory, 0, size_t{512} << 20));
  }

  std::unique_ptr<Communicator> Join(SumMethod method) {
    cuda::Device device = timer.device();
    device.ordinal = place.rank;
    std::string why;
    auto group = Communicator::Create(
        {.place = place, .max_rows = kMaxRows, .hidden = kWidth, .forced = method}, device, &why);
    if (group == nullptr) std::fprintf(stderr, "%s\n", why.c_str());
    CHECK(group != nullptr);
    return group;
  }

  void Print(const char* what, const char* method, int64_t rows, int64_t bytes, double us) {
    if (place.rank != 0) return;
    std::printf(
        "{\"ranks\": %d, \"collective\": \"%s\", \"method\": \"%s\", \"rows\": %lld, "
        "\"bytes\": %lld, \"us\": %.2f}\n",
        place.ranks, what, method, static_cast<long long>(rows), static_cast<long long>(bytes), us);
    std::fflush(stdout);
  }

  void Sums(SumMethod method) {
    const auto group = Join(method);
    for (const int64_t rows : {1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 8192}) {
      const TensorView x(memory, DType::kBF16, {rows, kWidth});
      const TensorView residual(memory + (size_t{192} << 20), DType::kBF16, {rows, kWidth});
      const TensorView weight(memory + (size_t{384} << 20), DType::kF32, {kWidth});
      const int calls = rows > 512 ? 8 : kCalls;
      const double sum = timer.Microseconds(calls, [&](int) { group->AllReduceSum(x); });
      Print("sum", Name(method), rows, x.bytes(), sum);
      const double fused = timer.Microseconds(calls, [&](int) {
        group->SumRmsNorm({.x = x, .residual = residual, .weight = weight, .eps = 1e-5f, .out = x});
      });
      Print("sum and norm", Name(method), rows, x.bytes(), fused);
    }
  }

  void Rows() {
    const auto group = Join(SumMethod::kOneShot);
    constexpr int64_t kVocab = 128256;
    const int64_t columns = kVocab / place.ranks;
    const Buffer shared = group->AllocateShared(static_cast<size_t>(
        MostRows(kMaxRows, place.ranks) * columns * place.ranks * int64_t{sizeof(float)}));
    for (const int32_t rows : {1, 64, 256}) {
      const TensorView x(memory, DType::kF32, {rows, columns});
      const TensorView out(shared.data(), DType::kF32,
                           {MostRows(rows, place.ranks), columns * place.ranks});
      auto* const jobs = reinterpret_cast<SampleJob*>(memory + (size_t{400} << 20));
      auto* const results = reinterpret_cast<SampleResult*>(memory + (size_t{420} << 20));
      const double us = timer.Microseconds(kCalls, [&](int) {
        group->ColumnsToRows(x, out);
        group->ShareSamples({.jobs = jobs, .results = results, .num_rows = rows});
      });
      Print("rows of logits, and draws", "peers", rows, x.bytes(), us);
    }
  }
};

bool Run(const RankPlace& place) {
  Bench bench(place);
  bench.Sums(SumMethod::kOneShot);
  bench.Sums(SumMethod::kTwoShot);
  bench.Sums(SumMethod::kNccl);
  bench.Rows();
  return true;
}

}  // namespace
}  // namespace quire::gpu

int main() {
  const int gpus = quire::gpu::CountGpus();
  const int ranks = gpus >= 8 ? 8 : gpus >= 4 ? 4 : gpus;
  if (ranks < 2) {
    std::printf("{\"skipped\": \"one GPU\"}\n");
    return 0;
  }
  return quire::gpu::OnForkedRanks(ranks, quire::gpu::Run) ? 0 : 1;
}
