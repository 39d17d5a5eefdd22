// One table of the accepted values of every engine setting, and the checks between settings.
#include "engine/engine_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace quire {
namespace {

constexpr double kMaxTokens = 16 << 20;  // longer than the context of any model
constexpr double kYear = 366 * 86400;

constexpr std::string_view kDTypes = "auto|float32|bfloat16|float16";

constexpr std::array kSettings = {
    EngineSetting{"model", &EngineConfig::model},
    EngineSetting{"load-format", &EngineConfig::load_format, 0, 0, "auto|safetensors|dummy"},
    EngineSetting{"device", &EngineConfig::device, 0, 0, "auto|cpu|cuda"},
    EngineSetting{"dtype", &EngineConfig::dtype, 0, 0, kDTypes},
    EngineSetting{"kv-cache-dtype", &EngineConfig::kv_cache_dtype, 0, 0, kDTypes},
    EngineSetting{"tensor-parallel-size", &EngineConfig::tensor_parallel_size, 1, 64},
    EngineSetting{"cpu-threads", &EngineConfig::cpu_threads, 0, 1024},
    EngineSetting{"block-size", &EngineConfig::block_size, 0, 64},
    EngineSetting{"kv-cache-memory-bytes", &EngineConfig::kv_cache_memory_bytes, 0, 0x1p46},
    EngineSetting{"gpu-memory-utilization", &EngineConfig::gpu_memory_utilization, 0.05, 1},
    EngineSetting{"num-blocks-override", &EngineConfig::num_blocks_override, 0, 1 << 30},
    EngineSetting{"max-model-len", &EngineConfig::max_model_len, 0, kMaxTokens},
    EngineSetting{"max-num-seqs", &EngineConfig::max_num_seqs, 1, 4096},
    EngineSetting{"max-num-batched-tokens", &EngineConfig::max_num_batched_tokens, 0, 1 << 20},
    EngineSetting{"max-num-queued-reqs", &EngineConfig::max_num_queued_reqs, 1, 1 << 20},
    EngineSetting{"max-num-queued-tokens", &EngineConfig::max_num_queued_tokens, 0, 0x1p40},
    EngineSetting{"enable-prefix-caching", &EngineConfig::enable_prefix_caching},
    EngineSetting{"kv-offloading-size", &EngineConfig::kv_offloading_size, -1, 0x1p16},
    EngineSetting{"kv-checksum", &EngineConfig::kv_checksum},
    EngineSetting{"max-sessions", &EngineConfig::max_sessions, 0, 1 << 20},
    EngineSetting{"max-session-tokens", &EngineConfig::max_session_tokens, 0, 0x1p40},
    EngineSetting{"session-ttl", &EngineConfig::session_ttl_seconds, 1, kYear},
    EngineSetting{"session-max-ttl", &EngineConfig::session_max_ttl_seconds, 1, kYear},
    EngineSetting{"session-idle-offload-after", &EngineConfig::session_idle_offload_after_seconds,
                  0, 86400},
    EngineSetting{"session-pin-share", &EngineConfig::session_pin_share, 0, 1},
    EngineSetting{"cudagraph-capture-sizes", &EngineConfig::cudagraph_capture_sizes},
    EngineSetting{"worker-process", &EngineConfig::worker_process, 0, 0, "auto|on|off"},
    EngineSetting{"worker-step-timeout", &EngineConfig::worker_step_timeout_seconds, 0.05, 86400},
};

// True if `word` is one of "a|b|c".
bool IsChoice(std::string_view choices, std::string_view word) {
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == word) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

std::string Text(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.15g", number);
  return text.data();
}

void AddFault(std::string& faults, std::string_view fault) {
  if (!faults.empty()) faults += '\n';
  faults += fault;
}

void CheckValue(const EngineConfig& config, const EngineSetting& setting, std::string& faults) {
  const std::string flag = "--" + std::string(setting.name) + " ";
  if (const auto* text = std::get_if<std::string EngineConfig::*>(&setting.member)) {
    const std::string& word = config.*(*text);
    if (setting.choices.empty() || IsChoice(setting.choices, word)) return;
    AddFault(faults, flag + word + ": choose one of " + std::string(setting.choices));
    return;
  }
  if (std::holds_alternative<bool EngineConfig::*>(setting.member)) return;
  double value = 0;
  if (const auto* narrow = std::get_if<int32_t EngineConfig::*>(&setting.member)) {
    value = config.*(*narrow);
  } else if (const auto* wide = std::get_if<int64_t EngineConfig::*>(&setting.member)) {
    value = static_cast<double>(config.*(*wide));
  } else {
    value = config.*std::get<double EngineConfig::*>(setting.member);
  }
  if (value >= setting.lowest && value <= setting.highest) return;  // false for NaN
  AddFault(faults, flag + Text(value) + ": must be from " + Text(setting.lowest) + " to " +
                       Text(setting.highest));
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

}  // namespace

std::span<const EngineSetting> EngineSettings() { return kSettings; }

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
  for (const EngineSetting& setting : kSettings) CheckValue(*this, setting, faults);
  CheckTogether(*this, faults);
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(faults);
}

}  // namespace quire
