// PagedAttention: decode as a fraction of read bandwidth over the keys and values it reads, prefill
// as a fraction of the FMA peak, both measured in this run. A result is checked by a property that
// needs no reference of equal cost: with V constant over a sequence the output is that constant.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "bench/kernels/roofline.h"
#include "kernels/cpu/cpu_backend.h"

namespace quire {
namespace {

int threads = 2;  // the argument

struct Shape {
  int32_t sequences, context, queries, heads, kv_heads, head_dim;
  DType dtype;
};

constexpr int32_t kBlock = 16;

// A step in which every sequence has the same context and adds the same number of queries.
class Step {
 public:
  Step(const Shape& s, Backend& backend) : s_(s), backend_(backend) {
    const int32_t blocks_each = (s.context + kBlock - 1) / kBlock;
    const int64_t width = int64_t{s.heads} * s.head_dim, tokens = int64_t{s.sequences} * s.queries;
    kv_.dtype = s.dtype;
    kv_.head_stride = int64_t{kBlock} * s.head_dim;
    kv_.kv_stride = kv_.head_stride * s.kv_heads;
    kv_.block_stride = 2 * kv_.kv_stride;
    kv_.block_size = kBlock;
    kv_.num_blocks = 1 + s.sequences * blocks_each;
    kv_.num_kv_heads = s.kv_heads;
    kv_.head_dim = s.head_dim;
    pool_ = backend.Allocate(kv_.num_blocks * kv_.block_stride * SizeOf(s.dtype));
    kv_.base = pool_.data();
    q_ = backend.Allocate(tokens * width * 4);
    out_ = backend.Allocate(tokens * width * 4);
    params_.q = TensorView(q_.data(), DType::kF32, {tokens, width});
    params_.out = TensorView(out_.data(), DType::kF32, {tokens, width});
    Fill();
    for (int32_t i = 0; i <= s.sequences; ++i) {
      begin_.push_back(i * s.queries);
      row_.push_back(i);
      length_.push_back(s.context);
    }
    for (int32_t b = 1; b < kv_.num_blocks; ++b) table_.push_back(b);
    std::shuffle(table_.begin(), table_.end(), std::minstd_rand(3));
    params_.kv = kv_;
    params_.num_heads = s.heads;
    params_.num_seqs = s.sequences;
    params_.query_begin = begin_.data();
    params_.context_len = length_.data();
    params_.table_row = row_.data();
    params_.block_table = table_.data();
    params_.table_stride = blocks_each;
    params_.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    params_.window = 0;
  }

  void Run() { backend_.PagedAttention(params_); }

  bool Right() const {
    for (int64_t t = 0; t < params_.out.dim[0]; ++t) {
      for (int64_t i = 0; i < params_.out.dim[1]; ++i) {
        const float expected = static_cast<float>(i % s_.head_dim % 7) - 3.0f;
        if (std::abs(params_.out.row<float>(t)[i] - expected) > 1e-4f) return false;
      }
    }
    return true;
  }

  // Bytes of K and V a step reads when each is read once.
  double bytes() const {
    return 2.0 * s_.sequences * s_.context * s_.kv_heads * s_.head_dim *
           static_cast<double>(SizeOf(s_.dtype));
  }
  double flops() const {
    const double keys = s_.queries * (s_.context - (s_.queries - 1) / 2.0);
    return 4.0 * s_.sequences * keys * s_.heads * s_.head_dim;
  }
  const Buffer& pool() const { return pool_; }

 private:
  void Fill() {
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    float* q = static_cast<float*>(q_.data());
    for (int64_t i = 0; i < params_.q.size(); ++i) q[i] = uniform(random);
    DispatchFloat(s_.dtype, [&](auto tag) {
      using T = decltype(tag);
      T* kv = static_cast<T*>(pool_.data());
      for (int64_t i = 0; i < kv_.num_blocks * kv_.block_stride; ++i) {
        const bool is_v = i / kv_.kv_stride % 2 == 1;
        kv[i] =
            FromFloat<T>(is_v ? static_cast<float>(i % s_.head_dim % 7) - 3.0f : uniform(random));
      }
    });
  }

  const Shape s_;
  Backend& backend_;
  KvLayerView kv_;
  Buffer pool_, q_, out_;
  std::vector<int32_t> begin_, row_, length_, table_;
  PagedAttentionParams params_;
};

void Attention(benchmark::State& state, const Shape& s) {
  static const std::unique_ptr<Backend> backend =
      std::move(CreateCpuBackends(CpuOptions{.threads_total = threads})[0]);
  Step step(s, *backend);
  step.Run();
  if (!step.Right()) {
    state.SkipWithError("wrong result: not timed");
    return;
  }
  for (auto _ : state) step.Run();
  using benchmark::Counter;
  const auto per_second = [](double amount, double peak) {
    return Counter(amount / peak, Counter::kIsIterationInvariantRate);
  };
  static const double fma_peak = FmaPeak(cpu::BestIsa(), threads);
  state.counters["GB/s"] = per_second(step.bytes(), 1e9);
  state.counters["of_read"] =
      per_second(step.bytes(), ReadBandwidth(step.pool().data(), step.pool().bytes(), threads));
  state.counters["GFLOP/s"] = per_second(step.flops(), 1e9);
  state.counters["of_fma_peak"] = per_second(step.flops(), fma_peak);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  using quire::DType;
  benchmark::Initialize(&argc, argv);
  if (argc == 2) quire::threads = std::atoi(argv[1]);
  const quire::Shape shapes[] = {
      {1, 256, 1, 4, 2, 64, DType::kF32},      {16, 256, 1, 4, 2, 64, DType::kF32},
      {1, 8192, 1, 32, 8, 128, DType::kBF16},  {16, 4096, 1, 32, 8, 128, DType::kBF16},
      {1, 512, 512, 4, 2, 64, DType::kF32},    {1, 2048, 512, 4, 2, 64, DType::kF32},
      {1, 2048, 512, 8, 2, 128, DType::kBF16},
  };
  for (const quire::Shape& s : shapes) {
    const std::string name =
        "attention/S:" + std::to_string(s.sequences) + "/context:" + std::to_string(s.context) +
        "/queries:" + std::to_string(s.queries) + "/heads:" + std::to_string(s.heads) + "x" +
        std::to_string(s.kv_heads) + "x" + std::to_string(s.head_dim) + "/" + Name(s.dtype);
    benchmark::RegisterBenchmark(name.c_str(), [s](benchmark::State& state) {
      quire::Attention(state, s);
    })->UseRealTime();
  }
  benchmark::RunSpecifiedBenchmarks();
}
