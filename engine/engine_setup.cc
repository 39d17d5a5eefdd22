// Resolves every "auto", adds the memory up before any is taken, and starts the CPU worker group.
#include "engine/engine_setup.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/worker/in_process_transport.h"
#include "kernels/cpu/host_limits.h"

namespace quire {
namespace {

constexpr int64_t kDefaultCpuKvBytes = int64_t{256} << 20;
constexpr int64_t kDefaultQueuedTokens = int64_t{8} << 20;

absl::Status ResolveDevice(EngineConfig& config) {
  if (config.device == "auto") config.device = "cpu";
  if (config.device == "cpu") return absl::OkStatus();
  return absl::UnimplementedError("--device " + config.device +
                                  " is not in this build; use --device cpu");
}

// The dtype a setting names; "auto" is replaced by the name of `automatic`.
absl::StatusOr<DType> ResolveDType(const std::string& flag, DType automatic, std::string& value) {
  if (value == "auto") value = Name(automatic);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (value == Name(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(flag + " " + value +
                                    " is unknown; use auto, float32, bfloat16 or float16");
}

// How many blocks the pool gets, and that one sequence of max_model_len fits into it.
absl::Status PlanBlocks(EngineSetup& setup) {
  EngineConfig& config = setup.config;
  const int64_t block_bytes = setup.kv_layout.block_bytes() * config.tensor_parallel_size;
  int64_t blocks = config.num_blocks_override;
  if (blocks == 0) {
    if (config.kv_cache_memory_bytes == 0) config.kv_cache_memory_bytes = kDefaultCpuKvBytes;
    blocks = config.kv_cache_memory_bytes / block_bytes;
  }
  blocks = std::min<int64_t>(blocks, INT32_MAX / config.block_size);
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
    config.max_model_len =
        static_cast<int32_t>(std::min<int64_t>(setup.model.max_position, capacity));
  }
  if (config.max_model_len > setup.model.max_position) {
    return absl::InvalidArgumentError("--max-model-len " + std::to_string(config.max_model_len) +
                                      " exceeds the model's " +
                                      std::to_string(setup.model.max_position) + " positions");
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

void PlanMemory(EngineSetup& setup) {
  const EngineConfig& config = setup.config;
  const ModelMemory model = PlanModelMemory(
      setup.model, {.rank = 0, .size = config.tensor_parallel_size}, setup.model_options);
  const RowTables::Shape tables{.num_rows = config.max_num_seqs,
                                .max_model_len = config.max_model_len,
                                .block_size = config.block_size};
  setup.memory.ranks = config.tensor_parallel_size;
  setup.memory.parts = {
      {"weights", model.weight_bytes},
      {"activations", model.arena_bytes},
      {"logits", int64_t{4} * config.max_num_seqs * setup.model.vocab_size},
      {"row_tables", RowTables::Bytes(tables)},
      {"step_arrays", StepArrays::Bytes(tables, config.max_num_batched_tokens)},
      {"kv_cache", setup.memory.num_blocks * setup.kv_layout.block_bytes()},
  };
}

}  // namespace

int64_t MemoryPlan::total_bytes() const {
  int64_t total = 0;
  for (const Part& part : parts) total += part.bytes;
  return total;
}

absl::StatusOr<EngineSetup> PlanEngine(const EngineConfig& requested) {
  RETURN_IF_ERROR(requested.Validate());
  EngineSetup setup;
  setup.config = requested;
  EngineConfig& config = setup.config;
  std::error_code error;
  if (!std::filesystem::is_directory(config.model, error)) {
    return absl::NotFoundError("--model " + config.model +
                               " is not a readable directory; give a Hugging Face checkpoint "
                               "directory (config.json, tokenizer.json, *.safetensors)");
  }
  RETURN_IF_ERROR(ResolveDevice(config));
  setup.device = config.device;
  ASSIGN_OR_RETURN(setup.model, ModelConfig::Load(config.model));
  RETURN_IF_ERROR(setup.model.CheckTensorParallel(config.tensor_parallel_size));
  if (config.block_size == 0) config.block_size = 16;
  if (config.cpu_threads == 0) config.cpu_threads = cpu::UsableCores();
  if (config.max_num_batched_tokens == 0) {
    config.max_num_batched_tokens = std::max(512, config.max_num_seqs);
  }

  ASSIGN_OR_RETURN(setup.model_options.weight_dtype,
                   ResolveDType("--dtype", setup.model.stored_dtype, config.dtype));
  setup.kv_layout.num_layers = setup.model.num_layers;
  setup.kv_layout.num_kv_heads = setup.model.num_kv_heads / config.tensor_parallel_size;
  setup.kv_layout.head_dim = setup.model.head_dim;
  setup.kv_layout.block_size = config.block_size;
  ASSIGN_OR_RETURN(setup.kv_layout.dtype,
                   ResolveDType("--kv-cache-dtype", DType::kF32, config.kv_cache_dtype));
  RETURN_IF_ERROR(PlanBlocks(setup));
  if (config.max_num_queued_tokens == 0) {
    config.max_num_queued_tokens = std::max<int64_t>(kDefaultQueuedTokens, config.max_model_len);
  }
  if (config.max_num_queued_tokens < config.max_model_len) {
    return absl::InvalidArgumentError(
        "--max-num-queued-tokens " + std::to_string(config.max_num_queued_tokens) +
        " would refuse a prompt of --max-model-len " + std::to_string(config.max_model_len) +
        " for ever: raise it to at least that");
  }
  setup.model_options.max_tokens = config.max_num_batched_tokens;
  setup.model_options.max_logit_rows = config.max_num_seqs;
  setup.model_options.max_model_len = config.max_model_len;
  PlanMemory(setup);
  setup.scheduler = {.num_blocks = setup.memory.num_blocks,
                     .block_size = config.block_size,
                     .max_model_len = config.max_model_len,
                     .max_num_seqs = config.max_num_seqs,
                     .max_num_batched_tokens = config.max_num_batched_tokens,
                     .max_num_queued_reqs = config.max_num_queued_reqs,
                     .max_partial_prefills = config.max_partial_prefills};
  setup.limits = {.max_num_queued_reqs = config.max_num_queued_reqs,
                  .max_num_queued_tokens = config.max_num_queued_tokens,
                  .max_model_len = config.max_model_len};
  return setup;
}

WorkerSpec SpecOf(const EngineSetup& setup, int32_t rank) {
  return {.model_dir = setup.config.model,
          .model = setup.model,
          .tp = {.rank = rank, .size = setup.config.tensor_parallel_size},
          .model_options = setup.model_options,
          .kv_layout = setup.kv_layout,
          .num_blocks = setup.memory.num_blocks,
          .worker = {.max_num_seqs = setup.config.max_num_seqs,
                     .max_num_batched_tokens = setup.config.max_num_batched_tokens,
                     .max_model_len = setup.config.max_model_len,
                     .vocab_size = setup.model.vocab_size,
                     .steps_in_flight = setup.config.steps_in_flight}};
}

absl::StatusOr<std::unique_ptr<Transport>> StartWorkers(const EngineSetup& setup,
                                                        std::string* device_description) {
  const int32_t ranks = setup.config.tensor_parallel_size;
  std::vector<std::unique_ptr<Backend>> backends =
      CreateCpuBackends(ranks, setup.config.cpu_threads);
  if (device_description != nullptr) *device_description = backends.front()->Describe();
  std::vector<std::unique_ptr<StepRunner>> workers;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker,
                     MakeWorker(SpecOf(setup, rank), std::move(backends[rank])));
    workers.push_back(std::move(worker));
  }
  return std::unique_ptr<Transport>(
      std::make_unique<InProcessTransport>(std::move(workers), setup.config.steps_in_flight));
}

}  // namespace quire
