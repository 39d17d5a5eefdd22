// The checks between settings, and the batch sizes of CUDA graphs.
#include "engine/engine_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace quire {
namespace {

std::string Text(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.15g", number);
  return text.data();
}

void AddFault(std::string& faults, std::string_view fault) {
  if (!faults.empty()) faults += '\n';
  faults += fault;
}

bool IsBlockSize(int32_t tokens) {
  return tokens == 0 || tokens == 16 || tokens == 32 || tokens == 64;
}

void CheckTiers(const EngineConfig& config, std::string& faults) {
  if (config.kv_offloading_size < 0 && config.kv_offloading_size != -1) {
    AddFault(faults, "--kv-offloading-size " + Text(config.kv_offloading_size) +
                         ": give GiB, 0 for none, or -1 for a size that follows from the KV cache");
  }
  if (!(config.kv_low_watermark >= 0 && config.kv_low_watermark <= config.kv_high_watermark &&
        config.kv_high_watermark <= 1)) {
    AddFault(faults, "kv_low_watermark and kv_high_watermark must rise from 0 to 1");
  }
  if (config.max_sessions_per_tenant < 0) {
    AddFault(faults, "max_sessions_per_tenant must not be negative");
  }
  if (config.session_ttl_seconds > config.session_max_ttl_seconds) {
    AddFault(faults, "--session-ttl " + Text(config.session_ttl_seconds) +
                         ": must not exceed --session-max-ttl (" +
                         Text(config.session_max_ttl_seconds) + ")");
  }
}

void CheckTogether(const EngineConfig& config, std::string& faults) {
  if (!IsBlockSize(config.block_size)) {
    AddFault(faults, "--block-size " + std::to_string(config.block_size) +
                         ": choose 16, 32 or 64 tokens, or 0 for the device's own");
  }
  if (config.num_blocks_override != 0 && config.kv_cache_memory_bytes != 0) {
    AddFault(faults,
             "--num-blocks-override and --kv-cache-memory-bytes both size the KV cache: give one");
  }
  if (config.num_blocks_override == 1) {
    AddFault(faults, "--num-blocks-override 1: must be at least 2, since block 0 holds nothing");
  }
  if (config.max_model_len == 1) {
    AddFault(faults,
             "--max-model-len 1: must be at least 2, for a token of prompt and one of output");
  }
  if (config.max_num_batched_tokens != 0 && config.max_num_batched_tokens < config.max_num_seqs) {
    AddFault(faults, "--max-num-batched-tokens " + std::to_string(config.max_num_batched_tokens) +
                         ": must be at least --max-num-seqs (" +
                         std::to_string(config.max_num_seqs) +
                         "), so that every running sequence gets its token in a step");
  }
  if (!GraphSizes(config.cudagraph_capture_sizes, config.max_num_seqs)) {
    AddFault(faults, "--cudagraph-capture-sizes " + config.cudagraph_capture_sizes +
                         ": give auto, none, or batch sizes like 1,2,4,8");
  }
  if (config.device == "cuda" && config.worker_process == "off") {
    AddFault(faults,
             "--worker-process off: the server holds no GPU; ranks on --device cuda are "
             "processes of their own");
  }
  CheckTiers(config, faults);
  if (config.steps_in_flight != 1 && config.steps_in_flight != 2) {
    AddFault(faults, "steps_in_flight must be 1 or 2");
  }
  if (config.max_partial_prefills < 1) AddFault(faults, "max_partial_prefills must be at least 1");
}

void CheckNodes(const EngineConfig& config, std::string& faults) {
  const std::string nodes = "--nnodes " + std::to_string(config.nnodes);
  if (config.node_rank >= config.nnodes) {
    AddFault(faults, "--node-rank " + std::to_string(config.node_rank) +
                         ": nodes count from 0, and there are " + std::to_string(config.nnodes) +
                         " (--nnodes)");
  }
  if (config.nnodes == 1) return;
  if (config.leader_address.empty()) {
    AddFault(faults, nodes + ": needs --leader-address HOST:PORT, the same on every node");
  }
  // A follower learns the number of ranks from its leader.
  if (config.node_rank == 0 && config.tensor_parallel_size % config.nnodes != 0) {
    AddFault(faults, nodes + ": --tensor-parallel-size " +
                         std::to_string(config.tensor_parallel_size) +
                         " must be a multiple, so that every node has as many ranks");
  }
  if (config.worker_process == "off") {
    AddFault(faults, "--worker-process off: the ranks of several nodes are processes");
  }
}

}  // namespace

std::optional<std::vector<int32_t>> GraphSizes(const std::string& text, int32_t max_num_seqs) {
  std::vector<int32_t> sizes;
  if (text == "none") return sizes;
  if (text == "auto") {
    for (int32_t size = 1; size < max_num_seqs;) {
      sizes.push_back(size);
      size += size < 8 ? size : size < 64 ? 8 : 16;
    }
    sizes.push_back(max_num_seqs);
    return sizes;
  }
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int32_t size = 0;
    const auto [behind, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1) return std::nullopt;
    if (size <= max_num_seqs) sizes.push_back(size);
    if (behind == end) break;
    if (*behind != ',') return std::nullopt;
    at = behind + 1;
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

absl::Status EngineConfig::Validate() const {
  std::string faults;
  CheckTogether(*this, faults);
  CheckNodes(*this, faults);
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(faults);
}

}  // namespace quire
