// Copies between the KV pool of an 8B model (8 MiB a block of 64 tokens) and host memory: bytes per
// second in each direction, alone, in both together and beside decoding rows, next to plain copies
// of pinned memory in the same run; the cost of copies to steps; the time of pinning. Prints one
// JSON object per line. Runs from the repository's root.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "bench/engine/session_copier.h"
#include "engine/worker/program/cuda_worker.h"
#include "engine/worker/rank/graph_use.h"
#include "kernels/check.h"
#include "kernels/cuda/device/check.h"

namespace quire {
namespace {

constexpr char kModel[] = "bench/gpu/models/llama-3.1-8b";
constexpr int32_t kBlockSize = 64;
constexpr int32_t kRows = 64, kContext = 1024, kBlocksPerRow = 24;
constexpr int32_t kMaxTokens = 8192;
constexpr int32_t kFirstBlock = 1 + kRows * kBlocksPerRow;  // of the copied blocks
constexpr int32_t kSession = 8192 / kBlockSize;             // blocks: 1 GiB
constexpr int32_t kPages = 6 * kSession;
constexpr SessionCopier::Places kPlaces = {
    .first_block = kFirstBlock, .session_blocks = kSession, .num_pages = kPages};
constexpr int32_t kSteps = 300;

double Seconds(int64_t begin_ns) { return static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9; }

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

// GB/s of one large copy between a plain pinned buffer and the device, the best of several.
void PrintFloor() {
  constexpr size_t kBytes = size_t{1} << 30;
  void *host[2], *device[2];
  cudaStream_t streams[2];
  for (int i = 0; i < 2; ++i) {
    CUDA_CHECK(cudaMallocHost(&host[i], kBytes));
    CUDA_CHECK(cudaMalloc(&device[i], kBytes));
    CUDA_CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
  }
  const auto rate = [&](bool down, bool up) {
    double best = 0;
    for (int i = 0; i < 6; ++i) {
      const int64_t begin_ns = SteadyNowNs();
      if (down) {
        CUDA_CHECK(cudaMemcpyAsync(host[0], device[0], kBytes, cudaMemcpyDefault, streams[0]));
      }
      if (up)
        CUDA_CHECK(cudaMemcpyAsync(device[1], host[1], kBytes, cudaMemcpyDefault, streams[1]));
      CUDA_CHECK(cudaDeviceSynchronize());
      best = std::max(best, (down + up) * static_cast<double>(kBytes) / Seconds(begin_ns) * 1e-9);
    }
    return best;
  };
  std::printf(
      "{\"plain_copy\": \"pinned\", \"to_host\": %.2f, \"to_device\": %.2f, \"both\": %.2f}\n",
      rate(true, false), rate(false, true), rate(true, true));
  for (int i = 0; i < 2; ++i) {
    CUDA_CHECK(cudaFreeHost(host[i]));
    CUDA_CHECK(cudaFree(device[i]));
    CUDA_CHECK(cudaStreamDestroy(streams[i]));
  }
}

WorkerSpec Spec() {
  WorkerSpec spec;
  spec.model_dir = kModel;
  absl::StatusOr<ModelConfig> model = ModelConfig::Load(spec.model_dir);
  CHECK(model.ok());
  spec.model = *std::move(model);
  spec.model_options = {.weight_dtype = DType::kBF16,
                        .activation_dtype = DType::kBF16,
                        .dummy_weights = true,
                        .max_tokens = kMaxTokens,
                        .max_logit_rows = kRows + 1,
                        .max_model_len = kBlocksPerRow * kBlockSize};
  spec.kv_layout = {.num_layers = spec.model.num_layers,
                    .num_kv_heads = spec.model.num_kv_heads,
                    .head_dim = spec.model.head_dim,
                    .block_size = kBlockSize,
                    .dtype = DType::kBF16};
  spec.num_blocks = kFirstBlock + 2 * kSession;
  spec.num_pages = kPages;
  spec.worker = {.max_num_seqs = kRows,
                 .max_num_batched_tokens = kMaxTokens,
                 .max_model_len = kBlocksPerRow * kBlockSize,
                 .vocab_size = spec.model.vocab_size,
                 .steps_in_flight = 2,
                 .graph_sizes = {kRows}};
  return spec;
}

// Forwards copies. The bench makes the pages ready before, and times it.
class Prepared final : public CopyRunner {
 public:
  explicit Prepared(CopyRunner& inner) : inner_(inner) {}
  int64_t block_bytes() const override { return inner_.block_bytes(); }
  void Begin(CopyDirection direction, std::span<const BlockCopy> copies) override {
    inner_.Begin(direction, copies);
  }
  Outcome Finish(CopyDirection direction) override { return inner_.Finish(direction); }

 private:
  CopyRunner& inner_;
};

// Rows that decode at about the same context for as many steps as wanted, two steps in flight.
class Decoding {
 public:
  explicit Decoding(Worker& worker) : worker_(worker) {
    plan_.Clear();
    for (int32_t row = 0; row < kRows; ++row) {
      plan_.new_rows.push_back({.row = row, .num_prompt = kContext, .sampling = {}});
      for (int32_t i = 0; i < kBlocksPerRow; ++i) {
        plan_.block_adds.push_back({row, i, 1 + row * kBlocksPerRow + i});
      }
    }
    for (int32_t row = 0; row < kRows; row += kMaxTokens / kContext) {
      Launch(row, kMaxTokens / kContext, 0, kContext);
      Collect();
    }
  }
  // Milliseconds of each step.
  std::vector<double> Run(int32_t steps) {
    std::vector<double> ms;
    Launch(0, kRows, kContext, 1);
    int64_t before_ns = SteadyNowNs();
    for (int32_t i = 1; i <= steps; ++i) {
      Launch(0, kRows, kContext + i, 1);
      Collect();
      const int64_t now_ns = SteadyNowNs();
      ms.push_back(static_cast<double>(now_ns - std::exchange(before_ns, now_ns)) * 1e-6);
    }
    Collect();
    ms.erase(ms.begin(), ms.begin() + 5);
    return ms;
  }

 private:
  void Launch(int32_t first, int32_t rows, int32_t start, int32_t count) {
    plan_.step = ++step_;
    plan_.work.clear();
    for (int32_t row = first; row < first + rows; ++row) {
      plan_.work.push_back({.row = row, .start = start, .count = count, .sample = 1});
    }
    plan_.num_tokens = rows * count;
    plan_.num_samples = rows;
    plan_.graph_size = GraphSizeFor(plan_, worker_.graph_sizes());
    worker_.Launch(plan_);
    plan_.new_rows.clear();
    plan_.block_adds.clear();
  }
  void Collect() { worker_.Collect(result_); }

  Worker& worker_;
  StepPlan plan_;
  StepResult result_;
  uint64_t step_ = 0;
};

size_t FreeBytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

void PrintSteps(const char* beside, const std::vector<double>& ms,
                const std::vector<double>& alone) {
  std::printf(
      "{\"decode\": %d, \"beside\": \"%s\", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p50_ratio\": "
      "%.3f, "
      "\"p99_ratio\": %.3f}\n",
      kRows, beside, Quantile(ms, 0.5), Quantile(ms, 0.99),
      Quantile(ms, 0.5) / Quantile(alone, 0.5), Quantile(ms, 0.99) / Quantile(alone, 0.99));
  std::fflush(stdout);
}

// Pins the arena while rows decode, in short runs.
void MeasurePinning(CopyRunner& copies, Decoding& decoding) {
  constexpr int32_t kFew = kSteps / 10;
  const std::vector<double> alone = decoding.Run(kFew);
  const size_t before = FreeBytes();
  double seconds = 0;
  std::atomic<bool> pinned{false};
  std::thread pinning([&] {
    const int64_t begin_ns = SteadyNowNs();
    while (copies.PrepareNext() != CopyRunner::kAllPages) {
    }
    seconds = Seconds(begin_ns);
    pinned = true;
  });
  std::vector<double> ms;
  while (!pinned) {
    for (const double step : decoding.Run(kFew)) ms.push_back(step);
  }
  pinning.join();
  PrintSteps("pinning", ms, alone);
  const double gib = static_cast<double>(kPages * copies.block_bytes()) / (1 << 30);
  std::printf("{\"pinned_gib\": %.2f, \"seconds_per_gib\": %.3f, \"device_bytes\": %lld}\n", gib,
              seconds / gib, static_cast<long long>(before - FreeBytes()));
}

struct Mix {
  const char* name;
  bool stores, loads;
};
constexpr Mix kMixes[] = {{"restore", false, true}, {"offload", true, false}, {"both", true, true}};

void MeasureCopies(SessionCopier& copier) {
  for (const Mix& mix : kMixes) {
    std::vector<double> rates;
    for (int i = 0; i < 11; ++i) rates.push_back(copier.Rate(mix.stores, mix.loads, 1));
    std::printf("{\"copy\": \"%s\", \"beside\": \"nothing\", \"gbps\": %.2f, \"worst\": %.2f}\n",
                mix.name, Quantile(rates, 0.5), Quantile(rates, 0));
  }
}

void MeasureBoth(SessionCopier& copier, Decoding& decoding, const std::vector<double>& alone) {
  for (const Mix& mix : kMixes) {
    std::atomic<bool> stop{false};
    std::vector<double> rates;
    std::thread copying([&] {
      while (!stop) rates.push_back(copier.Rate(mix.stores, mix.loads, 1));
    });
    const std::vector<double> ms = decoding.Run(kSteps);
    stop = true;
    copying.join();
    rates.pop_back();  // ran without decoding beside it
    CHECK(!rates.empty());
    std::printf("{\"copy\": \"%s\", \"beside\": \"decode\", \"gbps\": %.2f, \"worst\": %.2f}\n",
                mix.name, Quantile(rates, 0.5), Quantile(rates, 0));
    PrintSteps(mix.name, ms, alone);
  }
}

void Measure() {
  const WorkerSpec spec = Spec();
  auto arena = std::make_shared<HostArena>(*HostArena::Create());
  CHECK(arena->Allocate(spec.arena_shape()).ok());
  CudaWorkerReport report;
  auto made = MakeCudaWorker(spec, CudaOptionsFor(spec, {}, 0, "build"), &report, arena);
  CHECK(made.ok());
  Worker& worker = **made;
  Decoding decoding(worker);
  const std::vector<double> alone = decoding.Run(kSteps);
  PrintSteps("nothing", alone, alone);
  Prepared runner(*worker.copies());
  SessionCopier copier(runner, kPlaces);
  copier.Rate(true, true, 1);  // warms up: the first touch of a page is slow
  std::printf(
      "{\"copy\": \"restore\", \"beside\": \"nothing\", \"pinned\": false, \"gbps\": %.2f}\n",
      copier.Rate(false, true, 1));
  MeasurePinning(*worker.copies(), decoding);
  MeasureCopies(copier);
  MeasureBoth(copier, decoding, alone);
}

}  // namespace
}  // namespace quire

int main() {
  quire::PrintFloor();
  std::fflush(stdout);
  quire::Measure();
  return 0;
}
