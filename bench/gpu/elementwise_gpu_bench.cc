// The row operations of a step in bf16: microseconds in a graph over inputs larger than the cache,
// next to the time to copy their bytes at the rate measured in this run. Prints one JSON object per
// line. The tests in tests/gpu check results; this program compares a few again before it times.
// Usage: elementwise_gpu_bench [TOKENS...]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/gpu/graph_timer.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/dtype.h"

namespace quire::gpu {
namespace {

// Shapes of Llama-3.1-8B.
constexpr int64_t kHidden = 4096, kIntermediate = 14336, kVocab = 128256;
constexpr int32_t kHeads = 32, kKvHeads = 8, kDim = 128, kBlockSize = 64;
constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kDim;
constexpr int64_t kPoolBlocks = 8192 / kBlockSize + 2;

class Bench {
 public:
  Bench() {
    // All operations' tensors lie in one pool of values, each at its own offset.
    CUDA_CHECK(cudaMalloc(&pool_, kPoolElements * 2));
    cuda::FillUniform(
        {.out = TensorView(pool_, DType::kBF16, {kPoolElements}), .seed = 1, .amplitude = 1.0f},
        timer_.device());
    std::vector<int32_t> ids(kMaxTokens);
    std::vector<int64_t> slots(kMaxTokens);
    for (int i = 0; i < kMaxTokens; ++i) {
      ids[i] = static_cast<int32_t>(i * int64_t{7919} % kVocab);
      slots[i] = kBlockSize + i;
    }
    ids_ = Upload(ids);
    slots_ = Upload(slots);
    CUDA_CHECK(cudaMalloc(&cos_sin_, kVocab * kDim * sizeof(float)));
    cuda::FillUniform({.out = TensorView(cos_sin_, DType::kF32, {kVocab, kDim}), .amplitude = 1},
                      timer_.device());
    copy_rate_ = timer_.CopyRate();
    std::printf("{\"what\": \"copy\", \"gb_per_s\": %.0f}\n", copy_rate_ / 1e9);
  }

  void RunAll(int64_t tokens) {
    const int64_t hidden = tokens * kHidden;
    Report("rms_norm", tokens, 2 * hidden,
           [&](int i) { cuda::RmsNorm(Norm(i, tokens, false), timer_.device()); });
    Report("rms_norm_residual", tokens, 4 * hidden,
           [&](int i) { cuda::RmsNorm(Norm(i, tokens, true), timer_.device()); });
    Report("silu_mul", tokens, 3 * tokens * kIntermediate, [&](int i) {
      bf16* at = Place(i, 3 * tokens * kIntermediate);
      cuda::SiluMul({.gate_up = View(at, tokens, 2 * kIntermediate),
                     .out = View(at + 2 * tokens * kIntermediate, tokens, kIntermediate)},
                    timer_.device());
    });
    FamilyOperations(tokens);
    for (bool normalised : {false, true}) {
      Report(normalised ? "rope_store_kv_qk_norm" : "rope_store_kv", tokens, 2 * tokens * kQkv,
             [&](int i) { cuda::RopeStoreKv(Rope(i, tokens, normalised), timer_.device()); });
    }
    Report("embed", tokens, 2 * hidden, [&](int i) {
      cuda::Embed({.ids = ids_,
                   .table = View(pool_, kVocab, kHidden),
                   .vocab_begin = 0,
                   .out = View(pool_ + kVocab * kHidden + Offset(i, hidden), tokens, kHidden)},
                  timer_.device());
    });
    if (tokens <= 256) {
      const int32_t* rows = Reversed(tokens);
      Report("gather_rows", tokens, 2 * hidden, [&](int i) {
        bf16* at = Place(i, 2 * hidden);
        cuda::GatherRows({.x = View(at, tokens, kHidden),
                          .rows = rows,
                          .out = View(at + hidden, tokens, kHidden)},
                         timer_.device());
      });
    }
  }

  // The operations of kernels/family_operations.h; heads are those of the queries, in place.
  void FamilyOperations(int64_t tokens) {
    const int64_t hidden = tokens * kHidden, wide = tokens * kIntermediate;
    Report("layer_norm", tokens, 2 * hidden,
           [&](int i) { cuda::LayerNorm(LayerNorm(i, tokens, 1), timer_.device()); });
    Report("layer_norm_heads", tokens, 2 * hidden,
           [&](int i) { cuda::LayerNorm(LayerNorm(i, tokens, kHeads), timer_.device()); });
    Report("add_scaled", tokens, 3 * hidden, [&](int i) {
      bf16* at = Place(i, 2 * hidden);
      cuda::AddScaled({.x = View(at, tokens, kHidden),
                       .scale = 1e-3f,
                       .out = View(at + hidden, tokens, kHidden)},
                      timer_.device());
    });
    for (const bool gated : {false, true}) {
      const int64_t operands = gated ? 2 : 1;
      Report(gated ? "gelu_gated" : "gelu", tokens, (operands + 1) * wide, [&](int i) {
        bf16* at = Place(i, 3 * wide);
        cuda::Gelu({.x = View(at, tokens, operands * kIntermediate),
                    .gated = gated,
                    .out = View(at + 2 * wide, tokens, kIntermediate)},
                   timer_.device());
      });
    }
    Report("scale", tokens, 2 * hidden, [&](int i) {
      cuda::Scale({.x = View(Place(i, hidden), tokens, kHidden), .factor = 1, .cap = 0},
                  timer_.device());
    });
    if (tokens > 256) return;
    // Logits are floats: two elements of the pool each.
    Report("soft_cap_logits", tokens, 4 * tokens * kVocab, [&](int i) {
      bf16* at = Place(i, 2 * tokens * kVocab);
      cuda::Scale({.x = TensorView(at, DType::kF32, {tokens, kVocab}), .factor = 1, .cap = 30},
                  timer_.device());
    });
  }

  void Fill() {
    const int64_t size = int64_t{1} << 31;
    const double us = timer_.Microseconds(1, [&](int) {
      cuda::FillUniform({.out = TensorView(pool_, DType::kBF16, {size}), .amplitude = 1.0f},
                        timer_.device());
    });
    std::printf("{\"what\": \"fill_uniform\", \"gb_per_s\": %.0f}\n", 2.0 * size / us / 1e3);
  }

  // BeginStep and EndStep of `rows` works of `count` tokens each. Only latency, also of PCIe,
  // bounds them.
  void Frame(int32_t rows, int32_t count) {
    constexpr int64_t kStride = 1 << 17;
    char* ring_memory;
    CUDA_CHECK(cudaHostAlloc(&ring_memory, kStride + rows * sizeof(SampleResult),
                             cudaHostAllocMapped | cudaHostAllocPortable));
    StepMessage head{.num_rows = rows, .num_samples = rows, .patches_at = sizeof(StepMessage)};
    head.work_at = head.patches_at;
    head.jobs_at = head.work_at + rows * sizeof(RowWork);
    head.bytes = head.jobs_at + rows * sizeof(SampleJob);
    std::memset(ring_memory, 0, kStride);
    std::memcpy(ring_memory, &head, sizeof(head));
    for (int32_t r = 0; r < rows; ++r) {
      const RowWork work{.row = r, .start = 0, .count = count, .sample = 1};
      std::memcpy(ring_memory + head.work_at + r * sizeof(work), &work, sizeof(work));
    }
    uint64_t* step;
    CUDA_CHECK(cudaMalloc(&step, sizeof(*step)));
    CUDA_CHECK(cudaMemset(step, 0, sizeof(*step)));
    const StepRing ring{.messages = ring_memory,
                        .message_stride = kStride,
                        .results = reinterpret_cast<SampleResult*>(ring_memory + kStride),
                        .result_stride = rows,
                        .slots = 1,
                        .step = step};
    // Tables and outputs lie in the pool, each a megabyte from the next.
    const auto part = [&](int i) { return pool_ + (int64_t{i} << 22); };
    const BeginStepParams begin{.ring = ring,
                                .num_tokens = rows * count,
                                .num_seqs = rows,
                                .num_samples = rows,
                                .token_table = reinterpret_cast<int32_t*>(part(0)),
                                .token_stride = 8192,
                                .block_table = reinterpret_cast<int32_t*>(part(2)),
                                .table_stride = 256,
                                .block_size = kBlockSize,
                                .token_ids = reinterpret_cast<int32_t*>(part(3)),
                                .positions = reinterpret_cast<int32_t*>(part(4)),
                                .slots = reinterpret_cast<int64_t*>(part(5)),
                                .query_begin = reinterpret_cast<int32_t*>(part(6)),
                                .context_len = reinterpret_cast<int32_t*>(part(7)),
                                .table_row = reinterpret_cast<int32_t*>(part(8)),
                                .logit_rows = reinterpret_cast<int32_t*>(part(9)),
                                .jobs = reinterpret_cast<SampleJob*>(part(10))};
    const double begin_us =
        timer_.Microseconds(50, [&](int) { cuda::BeginStep(begin, timer_.device()); });
    const EndStepParams end{
        .ring = ring, .results = reinterpret_cast<SampleResult*>(part(11)), .num_samples = rows};
    const double end_us =
        timer_.Microseconds(50, [&](int) { cuda::EndStep(end, timer_.device()); });
    std::printf(
        "{\"what\": \"step\", \"rows\": %d, \"tokens\": %d, \"begin_us\": %.2f, "
        "\"end_us\": %.2f}\n",
        rows, rows * count, begin_us, end_us);
    CUDA_CHECK(cudaFreeHost(ring_memory));
    CUDA_CHECK(cudaFree(step));
  }

  // True if an element of each operation equals the host's result.
  bool Right() {
    const RmsNormParams norm = Norm(0, 3, false);
    cuda::RmsNorm(norm, timer_.device());
    const std::vector<float> x = Floats(norm.x, 2), w = Floats(norm.weight, 0);
    double squares = 0;
    for (float v : x) squares += double{v} * v;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    const std::vector<float> out = Floats(norm.out, 2);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::abs(out[i] - x[i] * factor * w[i]) > 0.01) return false;
    }
    return true;
  }

 private:
  using bf16 = uint16_t;
  static constexpr int kMaxTokens = 8192;
  static constexpr int64_t kPoolElements = int64_t{3} << 30;

  template <typename T>
  static T* Upload(const std::vector<T>& values) {
    T* data;
    CUDA_CHECK(cudaMalloc(&data, values.size() * sizeof(T)));
    CUDA_CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return data;
  }
  static const int32_t* Reversed(int64_t tokens) {
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < tokens; ++i) rows.push_back(static_cast<int32_t>(tokens - 1 - i));
    return Upload(rows);
  }
  static TensorView View(bf16* data, int64_t rows, int64_t columns) {
    return TensorView(data, DType::kBF16, {rows, columns});
  }
  // The i-th of several places for `elements` elements, together larger than the cache.
  static int64_t Offset(int i, int64_t elements) {
    const int64_t span = (elements + 127) / 128 * 128;
    return i % Places(elements) * span;
  }
  static int64_t Places(int64_t elements) {
    constexpr int64_t kBeyondCache = int64_t{120} << 20;
    return std::max<int64_t>(std::min<int64_t>(kBeyondCache / elements + 1, 4096), 2);
  }
  bf16* Place(int i, int64_t elements) { return pool_ + Offset(i, elements); }
  std::vector<float> Floats(const TensorView& v, int64_t row) {
    CUDA_CHECK(cudaDeviceSynchronize());
    const int64_t n = v.rank == 1 ? v.dim[0] : v.dim[1];
    std::vector<BF16> bits(static_cast<size_t>(n));
    CUDA_CHECK(cudaMemcpy(bits.data(), v.row<bf16>(row), static_cast<size_t>(n) * 2,
                          cudaMemcpyDeviceToHost));
    std::vector<float> floats;
    for (BF16 b : bits) floats.push_back(ToFloat(b));
    return floats;
  }

  RmsNormParams Norm(int i, int64_t tokens, bool with_residual) {
    const int64_t hidden = tokens * kHidden;
    bf16* at = Place(i, 3 * hidden);
    return {.x = View(at, tokens, kHidden),
            .residual = with_residual ? View(at + 2 * hidden, tokens, kHidden) : TensorView(),
            .weight = TensorView(pool_ + kPoolElements - kHidden, DType::kBF16, {kHidden}),
            .eps = 1e-5f,
            .out = View(at + hidden, tokens, kHidden)};
  }
  LayerNormParams LayerNorm(int i, int64_t tokens, int32_t groups) {
    const RmsNormParams norm = Norm(i, tokens, false);
    return {.x = norm.x,
            .groups = groups,
            .weight = norm.weight,
            .bias = groups == 1 ? norm.weight : TensorView(),
            .eps = norm.eps,
            .out = groups == 1 ? norm.out : norm.x};
  }
  RopeStoreKvParams Rope(int i, int64_t tokens, bool normalised) {
    const int64_t kv_stride = int64_t{kKvHeads} * kBlockSize * kDim;
    const int64_t cache = kPoolBlocks * 2 * kv_stride;
    const TensorView norm = TensorView(pool_, DType::kBF16, {kDim});
    return {.qkv = View(pool_ + 2000 * cache / 100 + Offset(i, tokens * kQkv), tokens, kQkv),
            .num_heads = kHeads,
            .positions = ids_,
            .slots = slots_,
            .cos_sin = TensorView(cos_sin_, DType::kF32, {kVocab, kDim}),
            .q_norm = normalised ? norm : TensorView(),
            .k_norm = normalised ? norm : TensorView(),
            .norm_eps = 1e-5f,
            .kv = {.base = pool_ + i % 16 * cache,
                   .dtype = DType::kBF16,
                   .block_stride = 2 * kv_stride,
                   .kv_stride = kv_stride,
                   .head_stride = kBlockSize * kDim,
                   .block_size = kBlockSize,
                   .num_blocks = static_cast<int32_t>(kPoolBlocks),
                   .num_kv_heads = kKvHeads,
                   .head_dim = kDim}};
  }

  void Report(const char* name, int64_t tokens, int64_t elements,
              const std::function<void(int)>& enqueue) {
    const int count = tokens <= 256 ? 200 : 20;
    const double us = timer_.Microseconds(count, enqueue);
    const double floor = 2.0 * static_cast<double>(elements) / copy_rate_ * 1e6;
    std::printf(
        "{\"what\": \"%s\", \"tokens\": %ld, \"us\": %.2f, \"floor_us\": %.2f, \"fraction\": "
        "%.3f}\n",
        name, static_cast<long>(tokens), us, floor, floor / us);
  }

  GraphTimer timer_;
  bf16* pool_ = nullptr;
  int32_t* ids_ = nullptr;
  int64_t* slots_ = nullptr;
  float* cos_sin_ = nullptr;
  double copy_rate_ = 0;
};

}  // namespace
}  // namespace quire::gpu

int main(int argc, char** argv) {
  quire::gpu::Bench bench;
  if (!bench.Right()) {
    std::fprintf(stderr, "wrong result: not timed\n");
    return 1;
  }
  std::vector<int64_t> tokens;
  for (int i = 1; i < argc; ++i) tokens.push_back(std::atol(argv[i]));
  if (tokens.empty()) tokens = {1, 8, 64, 256, 2048, 8192};
  for (int64_t t : tokens) bench.RunAll(t);
  for (const auto& [rows, count] : {std::pair{1, 1}, {64, 1}, {256, 1}, {1, 8192}, {4, 2048}}) {
    bench.Frame(rows, count);
  }
  bench.Fill();
  return 0;
}
