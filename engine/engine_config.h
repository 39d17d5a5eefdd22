// EngineConfig: every setting of the engine, as values, and the bounds of each.
// server/config/config_table.cc adds the help and turns the settings into flags, environment
// variables, file keys and --help. Validate rejects and never repairs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace quire {

struct EngineConfig {
  std::string model;                    // Hugging Face directory; empty: the bundled demo model
  std::string load_format = "auto";     // auto, safetensors, dummy (random weights, no files)
  std::string device = "auto";          // auto, cpu, cuda; auto: cuda if a GPU can run the model
  std::string dtype = "auto";           // weights: auto (as stored), float32, bfloat16, float16
  std::string kv_cache_dtype = "auto";  // auto: float32 on the cpu, as the weights on cuda
  int32_t tensor_parallel_size = 1;
  int32_t cpu_threads = 0;            // compute threads of the cpu device; 0: all cores
  int32_t block_size = 0;             // tokens a KV block: 16, 32, 64; 0: 16 on the cpu, 64 on cuda
  int64_t kv_cache_memory_bytes = 0;  // KV pool of the server; 0: 256 MiB on the cpu, on cuda the
                                      // rest of gpu_memory_utilization
  double gpu_memory_utilization = 0.9;  // share of a GPU's memory that the server may fill
  int32_t num_blocks_override = 0;      // exact number of KV blocks; 0: from the bytes
  int32_t max_model_len = 0;   // tokens of prompt and output, from 2; 0: the most that model, KV
                               // cache and device allow
  int32_t max_num_seqs = 256;  // running sequences
  int32_t max_num_batched_tokens = 0;  // tokens a step; 0: 512 on the cpu, 2048 on cuda
  int32_t max_num_queued_reqs = 16384;
  int64_t max_num_queued_tokens = 0;  // prompt tokens waiting; 0: 8 Mi
  bool enable_prefix_caching = true;  // prompts reuse the KV of equal prefixes
  // Host memory for KV that leaves the device, in GiB, for the whole server. 0: none; -1: as much
  // as the KV pool, at most a quarter of the memory that this process may use.
  double kv_offloading_size = -1;
  bool kv_checksum = false;  // of every block in host memory, verified on load
  // Shares of the pool. When the blocks that can be evicted without loss are fewer than the low
  // share, KV of idle sessions is stored to the host until they reach the high share.
  double kv_low_watermark = 0.1;
  double kv_high_watermark = 0.2;
  int32_t max_sessions = 16384;  // of all tenants
  int32_t max_sessions_per_tenant = 16384;
  int64_t max_session_tokens = 0;                 // of all sessions of a tenant; 0: 64 Mi
  double session_ttl_seconds = 3600;              // without use; default of a session
  double session_idle_offload_after_seconds = 2;  // without use; default of a session
  double session_max_ttl_seconds = 86400;         // maximum TTL that a session may request
  double session_pin_share = 0.25;                // of the pool: most that all pins may hold
  int32_t steps_in_flight = 2;                    // 1 or 2
  int32_t max_partial_prefills = 4;
  // Batch sizes whose decode steps are captured as CUDA graphs: auto, none, or "1,2,4". See
  // GraphSizes.
  std::string cudagraph_capture_sizes = "auto";
  std::string worker_process = "auto";      // ranks as processes: auto (on cuda), on, off
  std::string worker_program;               // path of quire-worker; empty: beside this program
  double worker_step_timeout_seconds = 30;  // a worker process without progress is replaced

  // OK, or INVALID_ARGUMENT listing every fault, one a line, each naming its flag.
  absl::Status Validate() const;
};

// One setting with a flag: its member, and the values that Validate accepts.
struct EngineSetting {
  using Member =
      std::variant<std::string EngineConfig::*, bool EngineConfig::*, int32_t EngineConfig::*,
                   int64_t EngineConfig::*, double EngineConfig::*>;
  std::string_view name;  // of the flag, without its dashes
  Member member;
  double lowest = 0;  // numbers: both ends are accepted
  double highest = 0;
  std::string_view choices;  // words: "auto|cpu"; empty: any text
};
std::span<const EngineSetting> EngineSettings();

// The batch sizes of a cudagraph_capture_sizes text, ascending, none above `max_num_seqs`. auto: 1,
// 2, 4, then every 8 to 64, then every 16, and the largest. nullopt for a malformed text.
std::optional<std::vector<int32_t>> GraphSizes(const std::string& text, int32_t max_num_seqs);

}  // namespace quire
