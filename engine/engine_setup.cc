// Resolves every "auto" and sums the memory before any is taken.
#include "engine/engine_setup.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/model/capability_check.h"
#include "engine/model/checkpoint/config_quantization.h"
#include "engine/model/checkpoint/model_files.h"
#include "engine/model/model.h"
#include "engine/worker/rank/worker.h"
#include "engine/worker/rank/worker_spec.h"
#include "kernels/cpu/host_limits.h"
#include "kernels/device_limits.h"

namespace quire {
namespace {

constexpr int64_t kDefaultCpuKvBytes = int64_t{256} << 20;
// Far above any device, and small enough that sums with it do not overflow.
constexpr int64_t kMaxKvBytes = int64_t{1} << 46;
// Enough to read from the page cache as fast as a device accepts data.
constexpr int32_t kMaxLoadThreads = 16;
constexpr int64_t kDefaultQueuedTokens = int64_t{8} << 20;
constexpr int64_t kDefaultSessionTokens = int64_t{64} << 20;
// A copy job takes milliseconds. A sequence that waits for a lost job is recomputed long before
// health reports the server as hung.
constexpr double kCopyTimeoutSeconds = 5;
constexpr double kGiB = 0x1p30;

bool OnGpu(const EngineSetup& setup) { return setup.device == "cuda"; }

constexpr char kKvFlag[] = "--kv-cache-dtype";

// The dtype a setting names; "auto" is replaced by the name of `automatic`.
absl::StatusOr<DType> ResolveDType(const std::string& flag, DType automatic, std::string& value) {
  if (value == "auto") value = Name(automatic);
  for (const DType dtype : kAllDTypes) {
    if (value == Name(dtype)) return dtype;
  }
  const std::string more = flag == kKvFlag ? "fp8, " : "";
  return absl::InvalidArgumentError(flag + " " + value + " is unknown; use " + more +
                                    "auto, float32, bfloat16 or float16");
}

// The same for keys and values, which may also be 8-bit.
absl::Status ResolveKvDType(DType automatic, EngineSetup& setup) {
  std::string& value = setup.config.kv_cache_dtype;
  setup.model_options.eight_bit_kv = value == "fp8";
  if (value == "fp8") {
    setup.kv_layout.dtype = DType::kE4M3;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(setup.kv_layout.dtype, ResolveDType(kKvFlag, automatic, value));
  return absl::OkStatus();
}

absl::Status ResolveDTypes(EngineSetup& setup) {
  EngineConfig& config = setup.config;
  ModelOptions& options = setup.model_options;
  const DType stored = setup.model.stored_dtype;
  if (!OnGpu(setup)) {
    ASSIGN_OR_RETURN(options.weight_dtype, ResolveDType("--dtype", stored, config.dtype));
    return ResolveKvDType(DType::kF32, setup);
  }
  const DType narrow = stored == DType::kF32 ? DType::kBF16 : stored;
  ASSIGN_OR_RETURN(options.weight_dtype, ResolveDType("--dtype", narrow, config.dtype));
  options.activation_dtype = options.weight_dtype;
  return ResolveKvDType(options.weight_dtype, setup);
}

absl::Status ResolveRanks(EngineSetup& setup) {
  EngineConfig& config = setup.config;
  RETURN_IF_ERROR(setup.model.CheckTensorParallel(config.tensor_parallel_size));
  if (config.worker_process == "auto") {
    config.worker_process = OnGpu(setup) || config.nnodes > 1 ? "on" : "off";
  }
  return absl::OkStatus();
}

void ResolveSizes(EngineSetup& setup) {
  EngineConfig& config = setup.config;
  if (config.block_size == 0) config.block_size = OnGpu(setup) ? 64 : 16;
  if (config.cpu_threads == 0) config.cpu_threads = cpu::UsableCores();
  if (config.max_num_batched_tokens == 0) {
    config.max_num_batched_tokens = std::max(OnGpu(setup) ? 2048 : 512, config.max_num_seqs);
  }
  if (OnGpu(setup)) {
    setup.graph_sizes = *GraphSizes(config.cudagraph_capture_sizes, config.max_num_seqs);
  }
  if (config.load_format == "auto") config.load_format = "safetensors";
  setup.kv_layout.num_layers = setup.model.num_layers;
  setup.kv_layout.num_kv_heads = static_cast<int32_t>(
      KvShard(setup.model.num_kv_heads, {.size = config.tensor_parallel_size}).count);
  setup.kv_layout.head_dim = setup.model.head_dim;
  setup.kv_layout.block_size = config.block_size;
  setup.model_options.max_tokens = config.max_num_batched_tokens;
  setup.model_options.max_logit_rows = config.max_num_seqs + config.step_guesses();
  setup.model_options.dummy_weights = config.load_format == "dummy";
  setup.model_options.weights_in_place = !OnGpu(setup);
  setup.model_options.width_multiple =
      LimitsOf(setup.device).MlpMultiple(setup.model.quantization.eight_bit());
  setup.model_options.load_threads = std::min(cpu::UsableCores(), kMaxLoadThreads);
}

// The longest context before the KV pool is known.
int32_t LongestContext(const EngineSetup& setup) {
  if (setup.config.max_model_len > 0) return setup.config.max_model_len;
  return std::min(setup.model.max_position, LimitsOf(setup.device).max_context);
}

absl::Status CheckCapability(const EngineSetup& setup) {
  const EngineConfig& config = setup.config;
  return CheckDeviceCan({.model = setup.model,
                         .ranks = config.tensor_parallel_size,
                         .weight_dtype = setup.model_options.weight_dtype,
                         .kv_dtype = setup.kv_layout.dtype,
                         .max_num_seqs = config.max_num_seqs,
                         .max_num_batched_tokens = config.max_num_batched_tokens,
                         .max_model_len = config.max_model_len},
                        LimitsOf(setup.device));
}

// Memory that a GPU's driver takes by itself: for captured steps, and for kernels, which it loads
// at their first launch. Measured on an H200 and rounded up.
int64_t DriverBytes(const EngineSetup& setup) {
  constexpr int64_t kKernelBytes = int64_t{32} << 20;
  constexpr int64_t kCallBytes = int64_t{3} << 10;
  constexpr int64_t kCallsPerLayer = 16, kOtherCalls = 10;
  const int64_t calls = kCallsPerLayer * setup.model.num_layers + kOtherCalls;
  return kKernelBytes + static_cast<int64_t>(setup.graph_sizes.size()) * calls * kCallBytes;
}

// The memory of a rank beside its KV pool, for contexts of at most `max_model_len`.
std::vector<MemoryPlan::Part> FixedParts(const EngineSetup& setup, int32_t max_model_len) {
  const EngineConfig& config = setup.config;
  ModelOptions options = setup.model_options;
  options.max_model_len = max_model_len;
  const ModelMemory model =
      PlanModelMemory(setup.model, {.rank = 0, .size = config.tensor_parallel_size}, options);
  const RowTables::Shape tables{.num_rows = config.max_num_seqs,
                                .max_model_len = max_model_len,
                                .block_size = config.block_size,
                                .step_guesses = config.step_guesses()};
  std::vector<MemoryPlan::Part> parts = {
      {"weights", model.weight_bytes},
      {"activations", model.arena_bytes},
      {"logits", Worker::LogitsBytes(config.max_num_seqs + config.step_guesses(),
                                     setup.model.vocab_size, config.tensor_parallel_size)},
      {"row_tables", RowTables::Bytes(tables)},
      {"step_arrays", StepArrays::Bytes(tables, config.max_num_batched_tokens)},
  };
  if (!OnGpu(setup)) return parts;
  parts.push_back({"backend", setup.memory.device.backend_bytes});
  parts.push_back({"driver", DriverBytes(setup)});
  return parts;
}

int64_t Sum(const std::vector<MemoryPlan::Part>& parts) {
  int64_t total = 0;
  for (const MemoryPlan::Part& part : parts) total += part.bytes;
  return total;
}

// The default size of the KV pool over all ranks. On GPUs the rest of each one's budget, a share of
// its memory less what other processes and this process's context hold already.
int64_t DefaultKvBytes(EngineSetup& setup) {
  MemoryPlan& memory = setup.memory;
  if (!OnGpu(setup)) return kDefaultCpuKvBytes;
  memory.parts = FixedParts(setup, LongestContext(setup));
  return std::max<int64_t>(0, memory.budget_bytes - memory.total_bytes()) * memory.ranks;
}

absl::Status TooSmall(const EngineSetup& setup) {
  return absl::ResourceExhaustedError(
      "the GPU is too small for this: use a smaller --max-num-seqs, --max-num-batched-tokens or "
      "--max-model-len, a larger --gpu-memory-utilization, or a smaller model\n" +
      setup.memory.Table());
}

// Sizes the pool and checks that one sequence of max_model_len fits.
absl::Status PlanBlocks(EngineSetup& setup) {
  EngineConfig& config = setup.config;
  const int64_t block_bytes = setup.kv_layout.block_bytes() * config.tensor_parallel_size;
  int64_t blocks = config.num_blocks_override;
  if (blocks == 0) {
    const bool automatic = config.kv_cache_memory_bytes == 0;
    if (automatic) config.kv_cache_memory_bytes = DefaultKvBytes(setup);
    blocks = config.kv_cache_memory_bytes / block_bytes;
    if (automatic && OnGpu(setup) && blocks < 2) return TooSmall(setup);
  }
  blocks = std::min<int64_t>(blocks, INT32_MAX / config.block_size);
  if (blocks > kMaxKvBytes / block_bytes) {
    return absl::InvalidArgumentError("--num-blocks-override " + std::to_string(blocks) +
                                      ": blocks of " + std::to_string(block_bytes) +
                                      " bytes are more than 64 TiB together; give fewer");
  }
  if (config.num_blocks_override > 0) config.kv_cache_memory_bytes = blocks * block_bytes;
  const int64_t capacity = (blocks - 1) * config.block_size;  // block 0 holds nothing
  if (capacity < config.block_size) {
    return absl::InvalidArgumentError("the KV cache holds " +
                                      std::to_string(std::max<int64_t>(blocks, 0)) + " blocks of " +
                                      std::to_string(block_bytes) +
                                      " bytes; at least 2 are needed: raise "
                                      "--kv-cache-memory-bytes or --num-blocks-override");
  }
  if (config.max_model_len == 0) {
    config.max_model_len = static_cast<int32_t>(std::min<int64_t>(LongestContext(setup), capacity));
  }
  if (config.max_model_len > setup.model.longest_position) {
    return absl::InvalidArgumentError("--max-model-len " + std::to_string(config.max_model_len) +
                                      " exceeds the model's " +
                                      std::to_string(setup.model.longest_position) + " positions");
  }
  if (config.max_model_len > capacity) {
    return absl::InvalidArgumentError(
        "--max-model-len " + std::to_string(config.max_model_len) +
        " does not fit the KV cache of " + std::to_string(capacity) +
        " tokens: raise --kv-cache-memory-bytes to at least " +
        std::to_string((config.max_model_len / config.block_size + 2) * block_bytes));
  }
  setup.memory.num_blocks = static_cast<int32_t>(blocks);
  setup.memory.block_size = config.block_size;
  return absl::OkStatus();
}

absl::Status PlanMemory(EngineSetup& setup, const DeviceFacts& device) {
  MemoryPlan& memory = setup.memory;
  memory.ranks = setup.config.tensor_parallel_size;
  memory.device = device;
  if (OnGpu(setup)) {
    const auto share = static_cast<int64_t>(setup.config.gpu_memory_utilization *
                                            static_cast<double>(device.total_bytes));
    memory.budget_bytes = share - (device.total_bytes - device.free_bytes);
  }
  RETURN_IF_ERROR(PlanBlocks(setup));
  memory.parts = FixedParts(setup, setup.config.max_model_len);
  memory.parts.push_back({"kv_cache", memory.num_blocks * setup.kv_layout.block_bytes()});
  if (OnGpu(setup) && memory.total_bytes() > memory.budget_bytes) return TooSmall(setup);
  setup.model_options.max_model_len = setup.config.max_model_len;
  return absl::OkStatus();
}

std::string GiBText(int64_t bytes) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.2f GiB", static_cast<double>(bytes) / kGiB);
  return text.data();
}

// The ranks of each host.
int32_t HostRanks(const EngineSetup& setup) {
  return std::max(1, setup.memory.ranks / setup.config.nnodes);
}

// On the cpu the plan is in this host's memory, and the system ends a process that takes more than
// there is.
absl::Status CheckHostHolds(const EngineSetup& setup, int64_t limit) {
  if (OnGpu(setup)) return absl::OkStatus();
  const MemoryPlan& memory = setup.memory;
  const int32_t ranks = HostRanks(setup);
  if (memory.total_bytes() <= limit / ranks) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "the plan takes " + GiBText(memory.total_bytes()) + " on each of " + std::to_string(ranks) +
      " ranks of this host, more than the " + GiBText(limit) +
      " that this process may use: lower --kv-cache-memory-bytes, --num-blocks-override, "
      "--max-num-seqs, --max-num-batched-tokens or --max-model-len, take a smaller model, or raise "
      "the memory limit of the container, if there is one\n" +
      memory.Table());
}

// Sizes the host memory for KV that leaves the device.
absl::Status PlanPages(EngineSetup& setup, int64_t limit) {
  EngineConfig& config = setup.config;
  MemoryPlan& memory = setup.memory;
  memory.host_limit_bytes = limit;
  const int64_t page = setup.kv_layout.block_bytes() * memory.ranks;
  // On the cpu the rest of the plan is in the same memory.
  const int64_t rest = OnGpu(setup) ? 0 : memory.total_bytes() * HostRanks(setup);
  const int64_t free = std::max<int64_t>(0, limit - rest);
  if (config.kv_offloading_size == -1) {
    const int64_t pages = std::min({int64_t{memory.num_blocks - 1}, limit / 4 / page, free / page});
    config.kv_offloading_size = static_cast<double>(pages * page) / kGiB;
  }
  const auto wanted = static_cast<int64_t>(config.kv_offloading_size * kGiB);
  if (wanted > free) {
    return absl::InvalidArgumentError(
        "--kv-offloading-size: " + GiBText(wanted) + " of host memory, beside " + GiBText(rest) +
        " for everything else, are more than the " + GiBText(limit) +
        " that this process may use (its machine's memory, or its container's limit): give at "
        "most " +
        std::to_string(free >> 20) + "MiB");
  }
  memory.num_pages = static_cast<int32_t>(std::min<int64_t>(wanted / page, INT32_MAX));
  memory.host_bytes = memory.num_pages * page;
  if (wanted == 0 || memory.num_pages > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("--kv-offloading-size: " + std::to_string(wanted) +
                                    " bytes do not hold a KV block of " + std::to_string(page) +
                                    " bytes: give more, or 0 for none");
}

absl::Status PlanQueue(EngineConfig& config) {
  if (config.max_num_queued_tokens == 0) {
    config.max_num_queued_tokens = std::max<int64_t>(kDefaultQueuedTokens, config.max_model_len);
  }
  if (config.max_num_queued_tokens >= config.max_model_len) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--max-num-queued-tokens " + std::to_string(config.max_num_queued_tokens) +
      " would refuse a prompt of --max-model-len " + std::to_string(config.max_model_len) +
      " for ever: raise it to at least that");
}

SchedulerConfig SchedulerOf(const EngineSetup& setup) {
  const EngineConfig& config = setup.config;
  return {.num_blocks = setup.memory.num_blocks,
          .block_size = config.block_size,
          .max_model_len = config.max_model_len,
          .vocab_size = setup.model.vocab_size,
          .max_num_seqs = config.max_num_seqs,
          .max_num_batched_tokens = config.max_num_batched_tokens,
          .max_num_queued_reqs = config.max_num_queued_reqs,
          .pace_prompts = config.pace_prompts,
          .max_partial_prefills = config.max_partial_prefills,
          .step_guesses = config.step_guesses(),
          .hidden_size = setup.model.hidden_size,
          .prefix_cache = config.enable_prefix_caching,
          .num_pages = setup.memory.num_pages,
          .sessions = {.max_sessions = config.max_sessions,
                       .max_sessions_per_tenant = config.max_sessions_per_tenant,
                       .max_session_tokens = config.max_session_tokens,
                       .max_model_len = config.max_model_len,
                       .default_ttl_seconds = config.session_ttl_seconds,
                       .max_ttl_seconds = config.session_max_ttl_seconds,
                       .default_idle_offload_seconds = config.session_idle_offload_after_seconds,
                       .max_pinned_share = config.session_pin_share},
          .tiering = {.block_bytes = setup.kv_layout.block_bytes() * setup.memory.ranks,
                      .low_watermark = config.kv_low_watermark,
                      .high_watermark = config.kv_high_watermark,
                      .job_timeout_seconds = kCopyTimeoutSeconds}};
}

}  // namespace

int64_t MemoryPlan::total_bytes() const { return Sum(parts); }

int64_t MemoryPlan::block_bytes() const {
  const auto kv = std::ranges::find(parts, "kv_cache", &Part::name);
  return kv == parts.end() || num_blocks == 0 ? 0 : kv->bytes / num_blocks * ranks;
}

std::string MemoryPlan::Table() const {
  std::string table;
  const auto line = [&table](const std::string& name, int64_t bytes) {
    std::array<char, 80> text;
    std::snprintf(text.data(), text.size(), "  %-24s %10.1f MiB\n", name.c_str(),
                  static_cast<double>(bytes) * 0x1p-20);
    table += text.data();
  };
  for (const Part& part : parts) line(part.name, part.bytes);
  line("all of the above", total_bytes());
  if (budget_bytes > 0) {
    line("the budget", budget_bytes);
    line("in use before", device.total_bytes - device.free_bytes);
    line("the device (" + device.name + ")", device.total_bytes);
  }
  if (host_bytes > 0) line("host memory for KV", host_bytes);
  return table;
}

absl::StatusOr<EngineSetup> DraftEngine(const EngineConfig& requested) {
  RETURN_IF_ERROR(requested.Validate());
  EngineSetup setup;
  setup.config = requested;
  EngineConfig& config = setup.config;
  if (config.load_format != "dummy") RETURN_IF_ERROR(CheckWeightsFormat(config.model));
  std::error_code error;
  if (!std::filesystem::is_directory(config.model, error)) {
    return absl::NotFoundError("--model " + config.model +
                               " is not a readable directory; give a Hugging Face checkpoint "
                               "directory (config.json, tokenizer.json, *.safetensors)");
  }
  if (config.device == "auto") config.device = "cpu";
  setup.device = config.device;
  ASSIGN_OR_RETURN(setup.model, ModelConfig::Load(config.model));
  RETURN_IF_ERROR(ChooseQuantization(config.quantization, setup.model));
  config.quantization = QuantizationName(setup.model);
  RETURN_IF_ERROR(ResolveRanks(setup));
  RETURN_IF_ERROR(ResolveDTypes(setup));
  ResolveSizes(setup);
  RETURN_IF_ERROR(CheckCapability(setup));
  return setup;
}

absl::StatusOr<EngineSetup> PlanEngine(const EngineConfig& requested, const DeviceFacts& device,
                                       int64_t host_limit_bytes) {
  ASSIGN_OR_RETURN(EngineSetup setup, DraftEngine(requested));
  RETURN_IF_ERROR(PlanMemory(setup, device));
  if (host_limit_bytes == 0) host_limit_bytes = static_cast<int64_t>(cpu::UsableMemory());
  RETURN_IF_ERROR(CheckHostHolds(setup, host_limit_bytes));
  RETURN_IF_ERROR(PlanPages(setup, host_limit_bytes));
  RETURN_IF_ERROR(PlanQueue(setup.config));
  EngineConfig& config = setup.config;
  if (config.max_session_tokens == 0) {
    config.max_session_tokens = std::max<int64_t>(kDefaultSessionTokens, config.max_model_len);
  }
  setup.scheduler = SchedulerOf(setup);
  setup.limits = {.max_num_queued_reqs = config.max_num_queued_reqs,
                  .max_num_queued_tokens = config.max_num_queued_tokens,
                  .max_model_len = config.max_model_len,
                  .vocab_size = setup.model.vocab_size};
  return setup;
}

WorkerSpec SpecOf(const EngineSetup& setup, int32_t rank) {
  return {.model_dir = setup.config.model,
          .quantization = setup.config.quantization,
          .model = setup.model,
          .tp = {.rank = rank, .size = setup.config.tensor_parallel_size},
          .model_options = setup.model_options,
          .kv_layout = setup.kv_layout,
          .num_blocks = setup.memory.num_blocks,
          .num_pages = setup.memory.num_pages,
          .kv_checksum = setup.config.kv_checksum,
          .worker = {.max_num_seqs = setup.config.max_num_seqs,
                     .max_num_batched_tokens = setup.config.max_num_batched_tokens,
                     .step_guesses = setup.config.step_guesses(),
                     .max_model_len = LongestContext(setup),
                     .vocab_size = setup.model.vocab_size,
                     .hidden_size = setup.model.hidden_size,
                     .steps_in_flight = setup.config.steps_in_flight,
                     .late_masks = setup.config.nnodes == 1,
                     .graph_sizes = setup.graph_sizes}};
}

}  // namespace quire
