// WorkerSpec: everything that one rank's worker is built from, as values: the same for a thread of
// the server and for a process of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/kv_layout.h"
#include "engine/model/model_options.h"
#include "engine/worker/shm/host_arena.h"

namespace quire {

struct WorkerOptions {
  int32_t max_num_seqs = 0;  // rows
  int32_t max_num_batched_tokens = 0;
  int32_t step_guesses = 0;  // of a step at most: draws beyond one a row
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t steps_in_flight = 1;
  bool late_masks = false;           // masks may come while their step runs: all ranks on one host
  std::vector<int32_t> graph_sizes;  // batch sizes to capture, ascending; none on the CPU

  int32_t max_draws() const { return max_num_seqs + step_guesses; }
};

struct WorkerSpec {
  std::string model_dir;
  std::string quantization = "auto";  // as ChooseQuantization takes it
  ModelConfig model;                  // of both; no part of an order to another process
  TpInfo tp;
  ModelOptions model_options;
  KvLayout kv_layout;  // of this rank
  int32_t num_blocks = 0;
  int32_t num_pages = 0;     // of the host arena; 0: no arena
  bool kv_checksum = false;  // of every page, verified before it is loaded
  WorkerOptions worker;

  HostArena::Shape arena_shape() const { return {num_pages, kv_layout.block_bytes(), kv_checksum}; }
};

}  // namespace quire
