// Whole steps of a model's shape on the GPU with random weights: decode at batch sizes and context
// lengths, prefill, start-up, and the cost of graphs, each next to the floor of its bytes or
// operations at the rates measured in this run. Prints one JSON object per line.
//
//   step_gpu_bench [--ranks N] [--families | MODEL...]
//
// The models are folders of bench/gpu/models; an ending of the name says what the layers' matrices
// are (TakeQuantization), and "-fp8kv" behind it that the KV cache is 8-bit:
// "llama-3.1-8b-fp8-fp8kv" has both. By default those of a few sizes. --families measures those of
// further families, in fewer shapes: decode by 1 and 64 sequences and a prompt of 2k; so are those
// whose weights leave one GPU little room for KV. A model that the kernels do not take is named
// with the reason. From the repository's root. With N ranks, one a GPU, the floors are those of a
// rank.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/engine_config.h"
#include "engine/model/capability_check.h"
#include "engine/worker/program/cuda_worker.h"
#include "engine/worker/rank/graph_use.h"
#include "kernels/check.h"
#include "kernels/cuda/device/check.h"
#include "tests/gpu/forked_ranks.h"

namespace quire {
namespace {

constexpr char kCacheDir[] = "build/gpu-choices";
constexpr int32_t kBlockSize = 64;
constexpr int32_t kMaxTokens = 8192;
constexpr int32_t kMaxLen = 16384;
constexpr int32_t kSlotsAhead = 8;       // more than in service, to time the device alone
constexpr double kMatrixFlops = 788e12;  // bf16 on random data, measured on this device
constexpr double kEightBitFlops = 1580e12;
constexpr int64_t kLargeBytes = int64_t{40} << 30;  // of weights
constexpr const char* kFamilies[] = {"gemma-2-9b", "phi-4", "mistral-small-24b", "qwen3-32b"};

// The steps to measure. The KV cache has room for the most sequences: 1k of 256 sequences would
// take more than a GPU has beside the weights of a 32B model.
struct Extent {
  int32_t max_seqs;
  std::vector<int32_t> batches;
  std::vector<int32_t> prompts;
  bool mixed;  // also prompts beside decoding sequences
};
const Extent kFull = {256, {1, 8, 64, 256}, {2048, 8192}, true};
const Extent kShort = {64, {1, 64}, {2048}, false};

// Bytes per second of a large copy within the device, counting reads and writes.
double CopyRate() {
  constexpr size_t kBytes = size_t{4} << 30;
  void *from = nullptr, *to = nullptr;
  CUDA_CHECK(cudaMalloc(&from, kBytes));
  CUDA_CHECK(cudaMalloc(&to, kBytes));
  CUDA_CHECK(cudaMemset(from, 0x5A, kBytes));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  float best_ms = 1e9f;
  for (int i = 0; i < 5; ++i) {
    CUDA_CHECK(cudaEventRecord(begin));
    CUDA_CHECK(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice));
    CUDA_CHECK(cudaEventRecord(end));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    best_ms = std::min(best_ms, ms);
  }
  CUDA_CHECK(cudaFree(from));
  CUDA_CHECK(cudaFree(to));
  return 2.0 * kBytes / (best_ms * 1e-3);
}

// Removes the ending; whether it was there.
bool Strip(std::string_view ending, std::string& name) {
  if (!name.ends_with(ending)) return false;
  name.resize(name.size() - ending.size());
  return true;
}

// Takes the ending off a name: it says what the layers' matrices are.
Quantization TakeQuantization(std::string& name) {
  using enum Quantization::Source;
  // 8-bit floats with a scale a row, or a block.
  if (Strip("-fp8", name)) return {.source = kWhileLoading};
  if (Strip("-fp8blocks", name)) return {.source = kStored, .encoding = Encoding::kFp8Blocks};
  // 8-bit integers, multiplied by such integers.
  if (Strip("-w8a8", name)) return {.source = kStored, .encoding = Encoding::kInt8Rows};
  // Integers, multiplied by wide activations.
  if (Strip("-int8", name)) return {.source = kStored, .integers = IntegerFormat{.bits = 8}};
  if (Strip("-int4", name)) {
    return {.source = kStored, .integers = IntegerFormat{.bits = 4, .group = 128}};
  }
  return {};
}

WorkerSpec SpecFor(std::string name, const RankPlace& place, int32_t max_seqs) {
  WorkerSpec spec;
  spec.tp = {.rank = place.rank, .size = place.ranks};
  const bool eight_bit_kv = Strip("-fp8kv", name);
  Quantization quantization = TakeQuantization(name);
  spec.model_dir = "bench/gpu/models/" + name;
  absl::StatusOr<ModelConfig> model = ModelConfig::Load(spec.model_dir);
  CHECK(model.ok());
  spec.model = *std::move(model);
  spec.model.quantization = std::move(quantization);
  const bool eight_bit = spec.model.quantization.eight_bit();
  spec.model_options = {.weight_dtype = DType::kBF16,
                        .activation_dtype = DType::kBF16,
                        .eight_bit_kv = eight_bit_kv,
                        .dummy_weights = true,
                        .max_tokens = kMaxTokens,
                        .max_logit_rows = max_seqs + 1,
                        .max_model_len = kMaxLen,
                        .width_multiple = kCudaLimits.MlpMultiple(eight_bit)};
  spec.kv_layout = {
      .num_layers = spec.model.num_layers,
      .num_kv_heads = static_cast<int32_t>(KvShard(spec.model.num_kv_heads, spec.tp).count),
      .head_dim = spec.model.head_dim,
      .block_size = kBlockSize,
      .dtype = eight_bit_kv ? DType::kE4M3 : DType::kBF16};
  spec.num_blocks = 1 + max_seqs * 20 + kMaxLen / kBlockSize;
  spec.worker = {.max_num_seqs = max_seqs,
                 .max_num_batched_tokens = kMaxTokens,
                 .max_model_len = kMaxLen,
                 .vocab_size = spec.model.vocab_size,
                 .steps_in_flight = kSlotsAhead,
                 .graph_sizes = *GraphSizes("auto", max_seqs)};
  return spec;
}

// Elements of a layer's matrices.
double LayerElements(const ModelConfig& m) {
  const double heads = (m.num_heads + 2.0 * m.num_kv_heads) * m.head_dim;
  return m.hidden_size * (heads + double(m.num_heads) * m.head_dim) +
         3.0 * m.hidden_size * m.intermediate_size;
}

// Bytes of an element of a layer's matrices, with its part of a scale.
double ElementBytes(const ModelConfig& m) {
  const auto& integers = m.quantization.integers;
  if (integers.has_value()) {
    return integers->bits / 8.0 + (integers->group > 0 ? 4.0 / integers->group : 0);
  }
  return m.quantization.empty() ? 2 : 1;
}

// Bytes that a decode step must read: every weight except the embedding once, and K and V of the
// contexts.
double DecodeBytes(const ModelConfig& m, DType kv_dtype, double batch, double context) {
  const double layers = ElementBytes(m) * m.num_layers * LayerElements(m);
  const double weights = layers + 2 * double(m.hidden_size) * m.vocab_size;
  const double element = static_cast<double>(SizeOf(kv_dtype));
  const double kv = 2 * element * m.num_layers * m.num_kv_heads * m.head_dim * batch * context;
  return weights + kv;
}

// Seconds of a prompt's arithmetic.
double PrefillFloor(const ModelConfig& m, double tokens) {
  const double attention = 2.0 * tokens * m.num_heads * m.head_dim;  // causal: half of 4 T^2
  const double rate = m.quantization.eight_bit() ? kEightBitFlops : kMatrixFlops;
  return tokens * m.num_layers * (2 * LayerElements(m) / rate + attention / kMatrixFlops);
}

class Bench {
 public:
  Bench(const std::string& name, const RankPlace& place, const WorkerSpec& spec)
      : name_(name), place_(place), spec_(spec) {
    const int64_t begin_ns = SteadyNowNs();
    absl::StatusOr<std::unique_ptr<Worker>> worker =
        MakeCudaWorker(spec_, CudaOptionsFor(spec_, place_, place_.rank, kCacheDir), &report_);
    CHECK(worker.ok());
    worker_ = *std::move(worker);
    std::printf(
        "{\"model\": \"%s\", \"start_seconds\": %.3f, \"load_seconds\": %.3f, "
        "\"warm_seconds\": %.3f, \"planned_bytes\": %lld, \"measured_bytes\": %lld}\n",
        name.c_str(), static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9, report_.load_seconds,
        report_.warm_seconds, static_cast<long long>(report_.planned_bytes),
        static_cast<long long>(report_.measured_bytes));
    PrintGraphs();
    PrintActivations();
  }

  // Steps of the `batch` sequences of the last Fill, `ahead` of them in flight: seconds a step.
  double Decode(int32_t batch, int32_t context, int32_t ahead, int32_t steps) {
    for (int32_t i = 0; i < 8; ++i) Launch(0, batch, context + i, 1), Collect();
    const int64_t begin_ns = SteadyNowNs();
    for (int32_t i = 0, done = 0; done < steps; ++done) {
      for (; i < steps && i - done < ahead; ++i) Launch(0, batch, context + 8 + i, 1);
      Collect();
    }
    return static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9 / steps;
  }

  // Contexts to decode from, with room for `room` tokens more.
  void Fill(int32_t batch, int32_t context, int32_t room) {
    Begin(batch, context + room);
    // Random K and V: attention over zeros draws less power and runs faster than in service.
    const int32_t rows_at_once = kMaxTokens / context;
    for (int32_t row = 0; row < batch; row += rows_at_once) {
      Launch(row, std::min(rows_at_once, batch - row), 0, context);
      Collect();
    }
  }

  // Steps of the first `batch` sequences of the last Fill, plus `prompt` tokens of a new sequence
  // in one more row: seconds per step.
  double Mixed(int32_t batch, int32_t context, int32_t prompt, int32_t steps) {
    plan_.new_rows = {{.row = prompt_row(), .num_prompt = prompt}};
    plan_.block_adds.clear();
    for (int32_t i = 0; i * kBlockSize < prompt; ++i) {
      plan_.block_adds.push_back({prompt_row(), i, spec_.num_blocks - 1 - i});
    }
    plan_changes_sent_ = false;
    const auto launch = [&](int32_t i) { Launch(0, batch, context + i, 1, prompt); };
    for (int32_t i = 0; i < 2; ++i) launch(i), Collect();
    const int64_t begin_ns = SteadyNowNs();
    for (int32_t i = 0, done = 0; done < steps; ++done) {
      for (; i < steps && i - done < 2; ++i) launch(2 + i);
      Collect();
    }
    return static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9 / steps;
  }

  // Seconds of device idle time between two steps, over `steps` steps with two in flight: from the
  // end of a step to the beginning of the next, by the device's clock.
  double Idle(int32_t batch, int32_t context, int32_t steps) {
    stamps_.clear();
    stamping_ = true;
    Decode(batch, context, 2, steps);
    stamping_ = false;
    double idle_ms = 0;
    int32_t gaps = 0;
    // The last stamps: earlier ones are of prompts, and of steps that were waited for.
    for (size_t i = stamps_.size() - 2 * steps + 2; i < stamps_.size(); i += 2, ++gaps) {
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, stamps_[i - 1], stamps_[i]));
      idle_ms += ms;
    }
    for (const cudaEvent_t stamp : stamps_) CUDA_CHECK(cudaEventDestroy(stamp));
    return idle_ms * 1e-3 / gaps;
  }

  // The whole prompt of one sequence in one step: seconds.
  double Prefill(int32_t tokens) {
    double best = 1e9;
    for (int32_t i = 0; i < 4; ++i) {
      Begin(1, tokens);
      const int64_t begin_ns = SteadyNowNs();
      Launch(0, 1, 0, tokens);
      Collect();
      best = std::min(best, static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9);
    }
    return best;
  }

  const ModelConfig& model() const { return spec_.model; }
  DType kv_dtype() const { return spec_.kv_layout.dtype; }

 private:
  // Bytes that all captured steps share: the activations of the largest step.
  int64_t SharedBytes() const {
    ModelOptions options = spec_.model_options;
    options.max_tokens = max_seqs();
    CudaOptions backend = CudaOptionsFor(spec_, place_, place_.rank, "");
    backend.max_tokens = max_seqs();
    return PlanModelMemory(spec_.model, spec_.tp, options).arena_bytes + CudaBackendBytes(backend) +
           Worker::LogitsBytes(max_seqs(), spec_.model.vocab_size, place_.ranks);
  }

  // The activations of a rank beside those of a model of its share of the width on one rank.
  void PrintActivations() const {
    ModelConfig share = spec_.model;
    share.num_heads /= place_.ranks;
    share.num_kv_heads = spec_.kv_layout.num_kv_heads;
    share.intermediate_size /= place_.ranks;
    const auto bytes = [&](const ModelConfig& model, TpInfo tp) {
      return PlanModelMemory(model, tp, spec_.model_options).arena_bytes;
    };
    std::printf("{\"model\": \"%s\", \"activation_bytes\": %lld, \"of_its_share_alone\": %lld}\n",
                name_.c_str(), static_cast<long long>(bytes(spec_.model, spec_.tp)),
                static_cast<long long>(bytes(share, {})));
  }

  void PrintGraphs() const {
    int64_t bytes = 0;
    double ms = 0;
    for (const GraphStats& graph : report_.graphs) {
      bytes += graph.bytes;
      ms += graph.capture_ms;
    }
    const GraphStats& last = report_.graphs.back();
    std::printf(
        "{\"model\": \"%s\", \"graphs\": %zu, \"capture_ms\": %.1f, \"bytes\": %lld, "
        "\"largest_bytes\": %lld, \"shared_bytes\": %lld, \"nodes_of_largest\": %d}\n",
        name_.c_str(), report_.graphs.size(), ms, static_cast<long long>(bytes),
        static_cast<long long>(last.bytes), static_cast<long long>(SharedBytes()), last.nodes);
  }

  // Gives `rows` rows blocks for `tokens` tokens each, not in the order of memory.
  void Begin(int32_t rows, int32_t tokens) {
    plan_.Clear();
    const int32_t blocks = (tokens + kBlockSize - 1) / kBlockSize;
    CHECK_LE(rows * blocks, spec_.num_blocks - 1);
    int64_t next = 0;
    for (int32_t row = 0; row < rows; ++row) {
      plan_.new_rows.push_back({.row = row, .num_prompt = tokens, .sampling = {.temperature = 0}});
      for (int32_t i = 0; i < blocks; ++i, ++next) {
        const auto block = static_cast<int32_t>(1 + next * 7919 % (spec_.num_blocks - 1));
        plan_.block_adds.push_back({row, i, block});
      }
    }
    plan_changes_sent_ = false;
  }

  // `count` tokens of each of `rows` rows, and `prompt` of the prompt's row.
  void Launch(int32_t first, int32_t rows, int32_t start, int32_t count, int32_t prompt = 0) {
    if (plan_changes_sent_) {
      plan_.new_rows.clear();
      plan_.block_adds.clear();
    }
    plan_changes_sent_ = true;
    plan_.step = ++step_;
    plan_.work.clear();
    for (int32_t row = first; row < first + rows; ++row) {
      plan_.work.push_back({.row = row, .start = start, .count = count, .sample = 1});
    }
    if (prompt > 0) plan_.work.push_back({.row = prompt_row(), .start = 0, .count = prompt});
    plan_.num_tokens = rows * count + prompt;
    plan_.num_samples = rows;
    plan_.graph_size = GraphSizeFor(plan_, spec_.worker.graph_sizes);
    if (stamping_) Stamp();
    worker_->Launch(plan_);
    if (stamping_) Stamp();
  }
  int32_t max_seqs() const { return spec_.worker.max_num_seqs; }
  int32_t prompt_row() const { return max_seqs() - 1; }
  void Collect() { worker_->Collect(result_); }
  void Stamp() {
    auto& backend = static_cast<CudaBackend&>(worker_->backend());
    CUDA_CHECK(cudaEventCreate(&stamps_.emplace_back()));
    CUDA_CHECK(cudaEventRecord(stamps_.back(), static_cast<cudaStream_t>(backend.stream())));
  }

  const std::string name_;
  const RankPlace place_;
  const WorkerSpec spec_;
  CudaWorkerReport report_;
  std::unique_ptr<Worker> worker_;
  StepPlan plan_;
  StepResult result_;
  uint64_t step_ = 0;
  bool plan_changes_sent_ = false;
  bool stamping_ = false;
  std::vector<cudaEvent_t> stamps_;  // before and after each step
};

void MeasureDecode(Bench& bench, const std::string& name, const RankPlace& place, double copy_rate,
                   const std::vector<int32_t>& batches) {
  for (int32_t batch : batches) {
    constexpr int32_t kContext = 1024, kSteps = 40;
    bench.Fill(batch, kContext, kSteps + 8);
    const double floor =
        DecodeBytes(bench.model(), bench.kv_dtype(), batch, kContext) / place.ranks / copy_rate;
    const double alone = bench.Decode(batch, kContext, kSlotsAhead, kSteps);
    const double served = bench.Decode(batch, kContext, 2, kSteps);
    const double idle = bench.Idle(batch, kContext, kSteps);
    std::printf(
        "{\"model\": \"%s\", \"decode_batch\": %d, \"context\": %d, \"step_ms\": %.3f, "
        "\"device_step_ms\": %.3f, \"floor_ms\": %.3f, \"fraction\": %.3f, \"idle_us\": %.2f}\n",
        name.c_str(), batch, kContext, served * 1e3, alone * 1e3, floor * 1e3, floor / served,
        idle * 1e6);
  }
}

void MeasureMixed(Bench& bench, const std::string& name) {
  constexpr int32_t kBeside = 192;
  bench.Fill(kBeside, 1024, 32);
  for (int32_t prompt : {64, 128, 256, 384, 512, 832, 1344, 1856}) {
    std::printf(
        "{\"model\": \"%s\", \"decode_batch\": %d, \"context\": 1024, \"prompt\": %d, "
        "\"mixed_ms\": %.3f}\n",
        name.c_str(), kBeside, prompt, bench.Mixed(kBeside, 1024, prompt, 12) * 1e3);
  }
}

void MeasurePrefill(Bench& bench, const std::string& name, const RankPlace& place,
                    const std::vector<int32_t>& prompts) {
  for (int32_t tokens : prompts) {
    const double floor = PrefillFloor(bench.model(), tokens) / place.ranks;
    const double seconds = bench.Prefill(tokens);
    std::printf(
        "{\"model\": \"%s\", \"prefill\": %d, \"ms\": %.2f, \"floor_ms\": %.2f, "
        "\"fraction\": %.3f}\n",
        name.c_str(), tokens, seconds * 1e3, floor * 1e3, floor / seconds);
  }
}

// Whether the kernels take the model; else prints why.
bool Takes(const std::string& name, const WorkerSpec& spec) {
  const absl::Status can = CheckDeviceCan({.model = spec.model,
                                           .ranks = spec.tp.size,
                                           .weight_dtype = spec.model_options.weight_dtype,
                                           .kv_dtype = spec.kv_layout.dtype,
                                           .max_num_seqs = spec.worker.max_num_seqs,
                                           .max_num_batched_tokens = kMaxTokens,
                                           .max_model_len = kMaxLen},
                                          kCudaLimits);
  if (can.ok()) return true;
  const nlohmann::json line = {{"model", name}, {"refused", std::string(can.message())}};
  std::printf("%s\n", line.dump().c_str());
  return false;
}

int64_t WeightBytes(const WorkerSpec& spec) {
  return PlanModelMemory(spec.model, {}, spec.model_options).weight_bytes;
}

void Measure(const std::string& name, const RankPlace& place, double copy_rate,
             const Extent& wanted) {
  const bool large = place.ranks == 1 && WeightBytes(SpecFor(name, place, 1)) > kLargeBytes;
  const Extent& extent = large ? kShort : wanted;
  const WorkerSpec spec = SpecFor(name, place, extent.max_seqs);
  if (!Takes(name, spec)) return;
  Bench bench(name, place, spec);
  MeasureDecode(bench, name, place, copy_rate, extent.batches);
  if (extent.mixed) MeasureMixed(bench, name);
  MeasurePrefill(bench, name, place, extent.prompts);
  std::fflush(stdout);
}

// The same steps on one GPU, beside which those of several stand; the other ranks wait meanwhile.
void MeasureAlone(const std::string& name, const RankPlace& place) {
  const WorkerSpec spec = SpecFor(name, {}, kFull.max_seqs);
  if (place.ranks == 1 || WeightBytes(spec) > kLargeBytes) return;
  if (place.rank == 0) {
    Bench bench(name, {}, spec);
    for (int32_t batch : {1, 64}) {
      constexpr int32_t kContext = 1024, kSteps = 40;
      bench.Fill(batch, kContext, kSteps + 8);
      std::printf("{\"model\": \"%s\", \"alone_decode_batch\": %d, \"step_ms\": %.3f}\n",
                  name.c_str(), batch, bench.Decode(batch, kContext, 2, kSteps) * 1e3);
    }
  }
  place.exchange->Share("");
}

// Rank 0 prints.
bool Run(const std::vector<std::string>& names, const RankPlace& place, const Extent& extent) {
  if (place.rank != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) return false;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const double copy_rate = CopyRate();
  std::printf("{\"ranks\": %d, \"copy_bytes_per_second\": %.4g}\n", place.ranks, copy_rate);
  for (const std::string& name : names) {
    if (extent.mixed) MeasureAlone(name, place);
    Measure(name, place, copy_rate, extent);
  }
  return true;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  int ranks = 1;
  if (names.size() >= 2 && names[0] == "--ranks") {
    ranks = std::stoi(names[1]);
    names.erase(names.begin(), names.begin() + 2);
  }
  const bool families = !names.empty() && names[0] == "--families";
  if (families) names.assign(std::begin(quire::kFamilies), std::end(quire::kFamilies));
  if (names.empty()) {
    names = {"llama-3.1-8b",      "llama-3.1-8b-fp8",        "llama-3.1-8b-fp8-fp8kv",
             "llama-3.1-8b-int4", "llama-3.1-8b-fp8blocks",  "llama-3.1-8b-int8",
             "llama-3.1-8b-w8a8", "llama-3.1-70b-fp8-fp8kv", "llama-3.2-1b",
             "qwen2.5-0.5b"};
  }
  const quire::Extent& extent = families ? quire::kShort : quire::kFull;
  std::filesystem::create_directories(quire::kCacheDir);
  const auto run = [&](const quire::RankPlace& place) { return quire::Run(names, place, extent); };
  return (ranks == 1 ? run({}) : quire::gpu::OnForkedRanks(ranks, run)) ? 0 : 1;
}
