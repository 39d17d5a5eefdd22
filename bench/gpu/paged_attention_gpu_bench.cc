// Attention of several models on one device, in graphs over the pools of 32 layers: decode next to
// the time to read its keys and values, prefill next to the time of its arithmetic. Compares each
// shape with float64 first. Prints one JSON object per line. Usage: paged_attention_gpu_bench
// [decode] [few] [prefill] [MODEL...]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/attention/paged_attention.h"
#include "kernels/cuda/device/check.h"

namespace quire::cuda {
namespace {

// The read rate of an H200 in runs of 16 KiB, and its rate of products of random numbers.
constexpr double kBytesPerSecond = 4.47e12, kFlopsPerSecond = 788e12;
constexpr int kLayers = 32;
constexpr int64_t kMaxTokens = 16384, kMaxKvTokens = (256 << 10) + (64 << 10);

struct Model {
  const char* name;
  int heads, kv_heads, head_dim;
  float soft_cap = 0;
  int window = 0;
  bool eight_bit_kv = false;
};
// One is a shard of four ranks. Gemma's heads come without the cap, with it, and in a window.
constexpr Model kModels[] = {
    {"llama-3.1-8b", 32, 8, 128},      {"llama-3.1-8b-fp8kv", 32, 8, 128, 0, 0, true},
    {"llama-3.2-1b", 32, 8, 64},       {"qwen2.5-0.5b", 14, 2, 64},
    {"llama-3.1-70b-tp4", 16, 2, 128}, {"gemma-2-9b-uncapped", 16, 8, 256},
    {"gemma-2-9b", 16, 8, 256, 50},    {"gemma-2-9b-window", 16, 8, 256, 50, 4096},
    {"heads-of-96", 32, 8, 96},        {"heads-of-192", 16, 8, 192}};

struct Shape {
  int sequences, context, queries;
};

using Bits = uint16_t;
double Value(Bits bits) { return ToFloat(BF16{bits}); }
double Value(E4M3 element) { return ToFloat(element); }
void Narrow(float x, Bits& to) { to = FromFloat<BF16>(x).bits; }
void Narrow(float x, E4M3& to) { to = FromFloat<E4M3>(x); }

template <typename T>
T* OnDevice(const std::vector<T>& values) {
  T* data;
  CUDA_CHECK(cudaMalloc(&data, values.size() * sizeof(T)));
  CUDA_CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return data;
}

// Uniform in [-amplitude, amplitude) with a period of 1,000,003, so that no cache benefits from the
// repetition.
template <typename T>
T* Filled(int64_t count, float amplitude) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-amplitude, amplitude);
  std::vector<T> pattern(std::min<int64_t>(count, 1000003));
  for (T& v : pattern) Narrow(uniform(random), v);
  T* data;
  CUDA_CHECK(cudaMalloc(&data, static_cast<size_t>(count) * sizeof(T)));
  auto done = static_cast<int64_t>(pattern.size());
  CUDA_CHECK(cudaMemcpy(data, pattern.data(), pattern.size() * sizeof(T), cudaMemcpyHostToDevice));
  for (; done < count; done *= 2) {
    CUDA_CHECK(cudaMemcpy(data + done, data,
                          static_cast<size_t>(std::min(done, count - done)) * sizeof(T),
                          cudaMemcpyDeviceToDevice));
  }
  CUDA_CHECK(cudaDeviceSynchronize());
  return data;
}

class Bench {
 public:
  explicit Bench(const Model& model)
      : model_(model),
        width_(int64_t{model.heads} * model.head_dim),
        q_stride_(width_ + 2 * model.kv_heads * model.head_dim) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&device_.stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaDeviceGetAttribute(&device_.num_sms, cudaDevAttrMultiProcessorCount, 0));
    const AttentionLimits limits{.max_rows = 256,
                                 .max_tokens = kMaxTokens,
                                 .max_context = 32768,
                                 .num_heads = model.heads,
                                 .num_kv_heads = model.kv_heads,
                                 .head_dim = model.head_dim,
                                 .capped = model.soft_cap > 0};
    const auto bytes = static_cast<size_t>(PagedAttention::SpaceBytes(limits, device_.num_sms));
    CUDA_CHECK(cudaMalloc(&space_, bytes));
    CUDA_CHECK(cudaMemset(space_, 0, bytes));
    CUDA_CHECK(cudaDeviceSynchronize());
    attention_ = std::make_unique<PagedAttention>(limits, device_, space_);
    const int64_t elements = kMaxKvTokens * kLayers * 2 * model.kv_heads * model.head_dim;
    if (model.eight_bit_kv) {
      pool_ = reinterpret_cast<char*>(Filled<E4M3>(elements, kAmplitude));
      scales_ = OnDevice(std::vector<float>(static_cast<size_t>(model.kv_heads), kScale));
    } else {
      pool_ = reinterpret_cast<char*>(Filled<Bits>(elements, 1.0f));
    }
    q_ = Filled<Bits>(kMaxTokens * q_stride_, 4.0f);
    CUDA_CHECK(cudaMalloc(&out_, static_cast<size_t>(kMaxTokens * width_) * 2));
  }
  ~Bench() {
    for (void* data : {space_, static_cast<void*>(pool_), static_cast<void*>(q_),
                       static_cast<void*>(out_), static_cast<void*>(scales_)}) {
      CUDA_CHECK(cudaFree(data));
    }
    for (int32_t* data : {begin_, context_, row_, table_}) CUDA_CHECK(cudaFree(data));
    CUDA_CHECK(cudaStreamDestroy(device_.stream));
  }

  void CopyCeiling() {
    const int64_t pool =
        kMaxKvTokens * kLayers * 2 * model_.kv_heads * model_.head_dim * ElementBytes();
    const auto bytes = static_cast<size_t>(std::min(pool / 2, int64_t{4} << 30));
    // Not in a graph, where a copy may take a slower engine.
    const double us = MedianTime([&] {
      CUDA_CHECK(cudaMemcpyAsync(pool_, pool_ + bytes / 2, bytes, cudaMemcpyDeviceToDevice,
                                 device_.stream));
    });
    std::printf("{\"what\": \"copy\", \"gb_per_s\": %.0f}\n",
                2e-3 * static_cast<double>(bytes) / us);
  }

  void Measure(const Shape& s, int block_size) {
    Prepare(s, block_size);
    if (!Right(s)) return;
    const double plan = Microseconds([&] {
      for (int i = 0; i < kLayers; ++i) attention_->Plan(Params(s, 0));
    });
    const double run = Microseconds([&] {
      for (int layer = 0; layer < kLayers; ++layer) attention_->Run(Params(s, layer));
    });
    double pairs = 0;
    for (int i = 0; i < s.queries; ++i) pairs += Seen(s.context - i);
    const double us = run / kLayers;
    const double flops = 4.0 * s.sequences * pairs * static_cast<double>(width_);
    const int tokens = std::min(s.context, Seen(s.context) + s.queries - 1);
    const double bytes = 2.0 * static_cast<double>(ElementBytes()) * s.sequences * tokens *
                         model_.kv_heads * model_.head_dim;
    const double floor = std::max(bytes / kBytesPerSecond, flops / kFlopsPerSecond) * 1e6;
    std::printf(
        "{\"what\": \"attention\", \"model\": \"%s\", \"sequences\": %d, \"context\": %d, "
        "\"queries\": %d, "
        "\"block\": %d, \"us\": %.2f, \"floor_us\": %.2f, \"fraction\": %.3f, \"tb_per_s\": %.2f, "
        "\"tflops\": %.0f, \"plan_us\": %.2f}\n",
        model_.name, s.sequences, s.context, s.queries, block_size, us, floor, floor / us,
        bytes / us * 1e-6, flops / us * 1e-6, plan / kLayers);
    std::fflush(stdout);
  }

 private:
  // Of 8-bit elements, most of the range, and their scale: values in [-1, 1].
  static constexpr float kAmplitude = 256, kScale = 1 / kAmplitude;

  int64_t ElementBytes() const { return model_.eight_bit_kv ? 1 : 2; }
  // Tokens that the query at the end of `context` tokens sees.
  int Seen(int context) const {
    return model_.window > 0 ? std::min(context, model_.window) : context;
  }

  void Prepare(const Shape& s, int block_size) {
    kv_.dtype = model_.eight_bit_kv ? DType::kE4M3 : DType::kBF16;
    kv_.k_scales = kv_.v_scales = scales_;
    kv_.head_stride = int64_t{block_size} * model_.head_dim;
    kv_.kv_stride = kv_.head_stride * model_.kv_heads;
    kv_.block_stride = kv_.kv_stride * 2 * kLayers;
    kv_.block_size = block_size;
    kv_.num_blocks = static_cast<int32_t>(kMaxKvTokens / block_size);
    kv_.num_kv_heads = model_.kv_heads;
    kv_.head_dim = model_.head_dim;
    per_row_ = (s.context + block_size - 1) / block_size;
    std::vector<int32_t> ids(kv_.num_blocks - 1), begin, context, row;
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i + 1);
    std::shuffle(ids.begin(), ids.end(), std::minstd_rand(5));
    ids.resize(static_cast<size_t>(per_row_) * s.sequences);
    for (int i = 0; i <= s.sequences; ++i) {
      begin.push_back(i * s.queries);
      context.push_back(s.context);
      row.push_back(i);
    }
    for (int32_t* old : {begin_, context_, row_, table_}) CUDA_CHECK(cudaFree(old));
    begin_ = OnDevice(begin);
    context_ = OnDevice(context);
    row_ = OnDevice(row);
    table_ = OnDevice(ids);
    host_table_ = ids;
  }

  PagedAttentionParams Params(const Shape& s, int layer) const {
    KvLayerView kv = kv_;
    kv.base = pool_ + layer * 2 * kv_.kv_stride * ElementBytes();
    const int64_t tokens = int64_t{s.sequences} * s.queries;
    return {.q = TensorView(q_, DType::kBF16, {tokens, q_stride_}).Columns(0, width_),
            .kv = kv,
            .num_heads = model_.heads,
            .num_seqs = s.sequences,
            .query_begin = begin_,
            .context_len = context_,
            .table_row = row_,
            .block_table = table_,
            .table_stride = per_row_,
            .scale = 1.0f / std::sqrt(static_cast<float>(model_.head_dim)),
            .soft_cap = model_.soft_cap,
            .window = model_.window,
            .max_query_len = s.queries,
            .out = TensorView(out_, DType::kBF16, {tokens, width_})};
  }

  template <typename T>
  static std::vector<T> Fetch(const T* from, int64_t count) {
    std::vector<T> to(static_cast<size_t>(count));
    CUDA_CHECK(cudaMemcpy(to.data(), from, to.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
  // Elements of the pool from `at` on, as values.
  std::vector<double> FetchKv(const void* base, int64_t at, int64_t count) const {
    std::vector<double> values;
    if (model_.eight_bit_kv) {
      for (const E4M3 x : Fetch(static_cast<const E4M3*>(base) + at, count)) {
        values.push_back(Value(x) * static_cast<double>(kScale));
      }
    } else {
      for (const Bits x : Fetch(static_cast<const Bits*>(base) + at, count)) {
        values.push_back(Value(x));
      }
    }
    return values;
  }

  // Compares a few rows of a layer with float64.
  bool Right(const Shape& s) {
    const int layer = 3;
    const PagedAttentionParams p = Params(s, layer);
    CUDA_CHECK(cudaMemset(out_, 0xff, static_cast<size_t>(p.out.bytes())));
    CUDA_CHECK(cudaDeviceSynchronize());
    attention_->Plan(p);
    attention_->Run(p);
    CUDA_CHECK(cudaDeviceSynchronize());
    std::minstd_rand random(3);
    for (int sample = 0; sample < 12; ++sample) {
      const int sequence = static_cast<int>(random() % s.sequences);
      const int query = static_cast<int>(random() % s.queries),
                head = static_cast<int>(random() % model_.heads);
      const double error = Error(s, p, sequence, query, head);
      if (error < 0.01) continue;
      std::printf("{\"what\": \"wrong\", \"sequences\": %d, \"context\": %d, \"error\": %.3g}\n",
                  s.sequences, s.context, error);
      return false;
    }
    return true;
  }

  // ||out - reference|| / ||reference|| of one row.
  double Error(const Shape& s, const PagedAttentionParams& p, int sequence, int query,
               int head) const {
    const int64_t t = int64_t{sequence} * s.queries + query, dim = model_.head_dim;
    const std::vector<Bits> q = Fetch(q_ + t * q_stride_ + head * dim, dim);
    const std::vector<Bits> out = Fetch(out_ + t * width_ + head * dim, dim);
    const int visible = s.context - s.queries + query + 1;
    const int kv_head = head / (model_.heads / model_.kv_heads);
    std::vector<double> mean(static_cast<size_t>(dim), 0.0);
    double total = 0;
    const int first = visible - Seen(visible);
    for (int begin = 0; begin < visible; begin += p.kv.block_size) {
      if (begin + p.kv.block_size <= first) continue;
      const int64_t block = host_table_[sequence * per_row_ + begin / p.kv.block_size];
      const int64_t at = block * p.kv.block_stride + kv_head * p.kv.head_stride;
      const std::vector<double> k = FetchKv(p.kv.base, at, p.kv.head_stride);
      const std::vector<double> v = FetchKv(p.kv.base, at + p.kv.kv_stride, p.kv.head_stride);
      for (int i = 0; i < std::min(p.kv.block_size, visible - begin); ++i) {
        if (begin + i < first) continue;
        double dot = 0;
        for (int d = 0; d < dim; ++d) dot += Value(q[d]) * k[i * dim + d];
        dot *= static_cast<double>(p.scale);
        if (p.soft_cap > 0) dot = p.soft_cap * std::tanh(dot / p.soft_cap);
        const double weight = std::exp(dot);
        total += weight;
        for (int d = 0; d < dim; ++d) mean[d] += weight * v[i * dim + d];
      }
    }
    double error = 0, size = 0;
    for (int d = 0; d < dim; ++d) {
      error += std::pow(Value(out[d]) - mean[d] / total, 2);
      size += std::pow(mean[d] / total, 2);
    }
    return std::isnan(error) ? INFINITY : std::sqrt(error / size);
  }

  // Median time of the replays of a graph of fn.
  double Microseconds(const std::function<void()>& fn) {
    fn();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamBeginCapture(device_.stream, cudaStreamCaptureModeThreadLocal));
    fn();
    CUDA_CHECK(cudaStreamEndCapture(device_.stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const double us = MedianTime([&] { CUDA_CHECK(cudaGraphLaunch(exec, device_.stream)); });
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
    return us;
  }

  double MedianTime(const std::function<void()>& enqueue) {
    cudaEvent_t from, to;
    CUDA_CHECK(cudaEventCreate(&from));
    CUDA_CHECK(cudaEventCreate(&to));
    std::vector<float> times;
    for (int i = 0; i < 9; ++i) {
      CUDA_CHECK(cudaEventRecord(from, device_.stream));
      enqueue();
      CUDA_CHECK(cudaEventRecord(to, device_.stream));
      CUDA_CHECK(cudaEventSynchronize(to));
      float ms;
      CUDA_CHECK(cudaEventElapsedTime(&ms, from, to));
      if (i > 1) times.push_back(ms);
    }
    CUDA_CHECK(cudaEventDestroy(from));
    CUDA_CHECK(cudaEventDestroy(to));
    std::sort(times.begin(), times.end());
    return 1e3 * static_cast<double>(times[times.size() / 2]);
  }

  const Model model_;
  const int64_t width_, q_stride_;
  Device device_;
  std::unique_ptr<PagedAttention> attention_;
  void* space_ = nullptr;
  char* pool_ = nullptr;
  float* scales_ = nullptr;  // of 8-bit K and V
  Bits *q_ = nullptr, *out_ = nullptr;
  int32_t *begin_ = nullptr, *context_ = nullptr, *row_ = nullptr, *table_ = nullptr;
  std::vector<int32_t> host_table_;
  int64_t per_row_ = 0;
  KvLayerView kv_;
};

}  // namespace
}  // namespace quire::cuda

int main(int argc, char** argv) {
  using quire::cuda::Shape;
  const auto named = [&](const char* name) {
    return std::any_of(argv + 1, argv + argc,
                       [&](const char* a) { return std::strcmp(a, name) == 0; });
  };
  const bool any_model =
      std::none_of(std::begin(quire::cuda::kModels), std::end(quire::cuda::kModels),
                   [&](const auto& model) { return named(model.name); });
  const bool any_kind = !named("decode") && !named("few") && !named("prefill");
  for (const quire::cuda::Model& model : quire::cuda::kModels) {
    if (!any_model && !named(model.name)) continue;
    quire::cuda::Bench bench(model);
    bench.CopyCeiling();
    if (any_kind || named("decode")) {
      for (const Shape& s : {Shape{1, 1024, 1}, Shape{8, 1024, 1}, Shape{64, 1024, 1},
                             Shape{256, 1024, 1}, Shape{1, 4096, 1}, Shape{8, 4096, 1},
                             Shape{64, 4096, 1}, Shape{1, 16384, 1}, Shape{256, 128, 1}}) {
        bench.Measure(s, 64);
      }
      for (int block_size : {32, 16}) bench.Measure({64, 4096, 1}, block_size);
    }
    // Few queries over long contexts: guessed tokens and small chunks of a prompt.
    if (any_kind || named("few")) {
      for (const Shape& s :
           {Shape{1, 1024, 5}, Shape{1, 1024, 17}, Shape{1, 8192, 2}, Shape{1, 8192, 5},
            Shape{1, 8192, 17}, Shape{1, 32768, 5}, Shape{1, 32768, 17}, Shape{8, 1024, 5},
            Shape{8, 8192, 5}, Shape{32, 1024, 5}, Shape{32, 4096, 5}, Shape{1, 8192, 64},
            Shape{4, 8192, 64}, Shape{1, 8192, 256}, Shape{1, 8192, 640}, Shape{1, 8192, 1024},
            Shape{1, 32768, 64}, Shape{1, 32768, 256}, Shape{1, 32768, 1024}}) {
        bench.Measure(s, 64);
      }
    }
    if (any_kind || named("prefill")) {
      for (const Shape& s :
           {Shape{1, 512, 512}, Shape{1, 2048, 2048}, Shape{1, 8192, 8192}, Shape{4, 2048, 2048},
            Shape{1, 8192, 512}, Shape{1, 16384, 2048}, Shape{1, 8192, 64}}) {
        bench.Measure(s, 64);
      }
      bench.Measure({1, 8192, 8192}, 16);
    }
  }
}
