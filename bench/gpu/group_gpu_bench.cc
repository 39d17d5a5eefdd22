// Collectives between GPUs in captured graphs: each way to sum over the ranks with the norm behind
// it, and NCCL beside it; rows of logits and draws; and products of a prompt whose sums run beside
// them on a second stream. Prints one JSON object per line.
//
//   group_gpu_bench     one rank a GPU, of 2, 4 or 8 GPUs
#include <cstdio>

#include "bench/gpu/graph_timer.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/group/communicator.h"
#include "kernels/cuda/matmul/matmul.h"
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

// The shape of a product of Llama-3.1-70B whose inputs are split.
struct Shape {
  const char* name;
  int64_t inputs;  // of all ranks
};

struct Bench {
  const RankPlace& place;
  GraphTimer timer;
  char* memory = nullptr;

  explicit Bench(const RankPlace& place_in) : place(place_in) {
    CUDA_CHECK(cudaMalloc(&memory, size_t{1} << 30));
    CUDA_CHECK(cudaMemset(memory, 0, size_t{1} << 30));
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

  // A prompt's product in `pieces` of its tokens; the sum of a piece runs beside the products of
  // the pieces behind it, on at most `blocks` multiprocessors.
  void Beside(const Shape& shape, int pieces, int blocks) {
    constexpr int64_t kTokens = 8192;
    const cuda::Device main = timer.device();
    cuda::Device second = main;
    second.num_sms = blocks;
    CUDA_CHECK(cudaStreamCreateWithFlags(&second.stream, cudaStreamNonBlocking));
    std::string why;
    const auto group = Communicator::Create(
        {.place = place, .max_rows = kMaxRows, .hidden = kWidth, .forced = SumMethod::kOneShot},
        second, &why);
    CHECK(group != nullptr);
    void* workspace = nullptr;
    CUDA_CHECK(cudaMalloc(&workspace, static_cast<size_t>(cuda::MatMul::WorkspaceBytes())));
    cuda::MatMul matmul(main, workspace, "");
    char* at = memory;
    const auto take = [&](int64_t rows, int64_t columns) {
      const TensorView view(at, DType::kBF16, {rows, columns});
      at += view.bytes();
      return view;
    };
    const int64_t k = shape.inputs / place.ranks;
    const TensorView x = take(kTokens, k), w = take(kWidth, k), out = take(kTokens, kWidth),
                     residual = take(kTokens, kWidth), weight(at, DType::kF32, {kWidth});
    for (const TensorView& view : {x, w}) {
      cuda::FillUniform({.out = view, .seed = 1, .amplitude = 1}, main);
    }
    cudaEvent_t ready, done, begin, end;
    for (cudaEvent_t* event : {&ready, &done}) {
      CUDA_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    const auto run = [&] {
      const int64_t rows = kTokens / pieces;
      for (int piece = 0; piece < pieces; ++piece) {
        const TensorView part = out.Rows(piece * rows, rows);
        matmul.Run({.x = x.Rows(piece * rows, rows), .w = w, .bias = {}, .out = part});
        CUDA_CHECK(cudaEventRecord(ready, main.stream));
        CUDA_CHECK(cudaStreamWaitEvent(second.stream, ready));
        group->SumRmsNorm({.x = part,
                           .residual = residual.Rows(piece * rows, rows),
                           .weight = weight,
                           .eps = 1e-5f,
                           .out = part});
      }
      CUDA_CHECK(cudaEventRecord(done, second.stream));
      CUDA_CHECK(cudaStreamWaitEvent(main.stream, done));
    };
    for (int i = 0; i < 3; ++i) run();
    CUDA_CHECK(cudaEventRecord(begin, main.stream));
    constexpr int kRuns = 20;
    for (int i = 0; i < kRuns; ++i) run();
    CUDA_CHECK(cudaEventRecord(end, main.stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    CUDA_CHECK(cudaFree(workspace));
    if (place.rank != 0) return;
    std::printf(
        "{\"ranks\": %d, \"product_and_sum\": \"%s\", \"tokens\": %lld, \"pieces\": %d, "
        "\"sum_blocks\": %d, \"us\": %.0f}\n",
        place.ranks, shape.name, static_cast<long long>(kTokens), pieces, blocks,
        ms * 1e3f / kRuns);
    std::fflush(stdout);
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
  for (const Shape& shape : {Shape{"o", 8192}, Shape{"down", 28672}}) {
    bench.Beside(shape, 1, 132);
    for (const int pieces : {2, 4}) {
      for (const int blocks : {8, 16, 32, 132}) bench.Beside(shape, pieces, blocks);
    }
  }
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
