// EngineConfig: every setting of the engine, as values. The table in server/config/config_table.cc
// bounds each value and derives flags, environment variables, file keys and --help. Validate checks
// the settings against each other; it changes none. PlanEngine resolves each "auto" and 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace quire {

struct EngineConfig {
  std::string model;                  // Hugging Face directory; empty: the bundled demo model
  std::string load_format = "auto";   // auto, safetensors, dummy (random weights, no files)
  std::string device = "auto";        // auto, cpu, cuda; auto: cuda if a GPU can run the model
  std::string dtype = "auto";         // weights: auto (as stored), float32, bfloat16, float16
  std::string quantization = "auto";  // 8-bit matrices: auto (as stored), none, fp8
  // auto: float32 on the cpu, as the weights on cuda; fp8: e4m3 with scales (kernels/ops.h)
  std::string kv_cache_dtype = "auto";
  int32_t tensor_parallel_size = 1;
  // Hosts that the ranks are spread over evenly, the first ranks on node 0, which is the leader.
  int32_t nnodes = 1;
  int32_t node_rank = 0;       // this host's
  std::string leader_address;  // HOST:PORT where the leader listens for the other nodes
  std::string group_key_file;  // a secret that all nodes share; empty: only loopback addresses
  int32_t cpu_threads = 0;     // compute threads of the cpu device; 0: all cores
  int32_t block_size = 0;      // tokens per KV block: 16, 32, 64; 0: 16 on the cpu, 64 on cuda
  int64_t kv_cache_memory_bytes = 0;    // KV pool of the server; 0: 256 MiB on the cpu; on cuda
                                        // the share of the GPU that the model leaves
  double gpu_memory_utilization = 0.9;  // share of a GPU's memory that the server may fill
  int32_t num_blocks_override = 0;      // exact number of KV blocks; 0: from the bytes
  int32_t max_model_len = 0;   // tokens of prompt and output, 2 or more; 0: the most that model,
                               // KV cache and device allow
  int32_t max_num_seqs = 256;  // running sequences
  int32_t max_num_batched_tokens = 0;  // tokens per step; 0: 512 on the cpu, 2048 on cuda
  bool pace_prompts = false;  // while requests decode, steps smaller than capped, from their times
  // Tokens that a request guesses ahead at most, and by default. 0: none.
  int32_t speculate = 0;
  // Decoding rows and guesses of a step together at most; where more rows decode, none guesses.
  int32_t speculate_step_tokens = 64;
  int32_t max_num_queued_reqs = 16384;
  int64_t max_num_queued_tokens = 0;  // prompt tokens waiting; 0: 8 * 2^20
  bool enable_prefix_caching = true;  // prompts reuse the KV of equal prefixes
  // Host memory for KV that leaves the device, in GiB, for the whole server. 0: none; -1: the size
  // of the KV pool, at most a quarter of the memory that this process may use.
  double kv_offloading_size = -1;
  bool kv_checksum = false;  // checksum each block in host memory and verify it on load
  // Shares of the pool. When the share of blocks that can be evicted without loss falls below the
  // low watermark, KV of idle sessions is stored to the host until that share reaches the high one.
  double kv_low_watermark = 0.1;
  double kv_high_watermark = 0.2;
  int32_t max_sessions = 16384;  // over all tenants
  int32_t max_sessions_per_tenant = 16384;
  int64_t max_session_tokens = 0;                 // of all sessions of a tenant; 0: 64 * 2^20
  double session_ttl_seconds = 3600;              // time unused until a session ends, by default
  double session_idle_offload_after_seconds = 2;  // time unused until its KV is stored, by default
  double session_max_ttl_seconds = 86400;         // maximum TTL that a session may request
  double session_pin_share = 0.25;   // largest share of the pool that all pins hold together
  int32_t steps_in_flight = 2;       // steps sent before the oldest result is read: 1 or 2
  int32_t max_partial_prefills = 4;  // prompts computed in chunks at one time
  // Batch sizes whose decode steps are captured as CUDA graphs: auto, none, or "1,2,4". See
  // GraphSizes.
  std::string cudagraph_capture_sizes = "auto";
  std::string worker_process =
      "auto";                  // each rank in a process of its own: auto (yes on cuda), on, off
  std::string worker_program;  // path of quire-worker; empty: beside this program
  double worker_step_timeout_seconds = 30;  // a worker process without progress is replaced
  int32_t max_worker_deaths = 3;  // in five minutes, after which workers are still replaced

  // Guesses of a step at most.
  int32_t step_guesses() const { return speculate > 0 ? speculate_step_tokens - 1 : 0; }
  // OK, or INVALID_ARGUMENT with one line per fault between settings, each naming its flag.
  absl::Status Validate() const;
};

// The batch sizes of a cudagraph_capture_sizes text, ascending; sizes above `max_num_seqs` are left
// out. auto: 1, 2, 4, the multiples of 8 to 64, the multiples of 16 above, and max_num_seqs itself.
// nullopt if the text is malformed.
std::optional<std::vector<int32_t>> GraphSizes(const std::string& text, int32_t max_num_seqs);

}  // namespace quire
