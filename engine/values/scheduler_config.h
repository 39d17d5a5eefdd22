// SchedulerConfig: the settings of the scheduler and its parts, as plain values. PlanEngine fills
// it from EngineConfig and the memory plan (engine/engine_setup.h).
#pragma once

#include <cstdint>
#include <limits>

namespace quire {

struct SessionConfig {
  int32_t max_sessions = 0;  // of all tenants
  int32_t max_sessions_per_tenant = 0;
  int64_t max_session_tokens = 0;  // of all sessions of a tenant: known tokens
  int32_t max_model_len = 0;       // a session as long as that takes no more turns
  double default_ttl_seconds = 0;
  double max_ttl_seconds = 0;
  double default_idle_offload_seconds = 0;
  double max_pinned_share = 0;  // of the pool's blocks, of all pins together
};

struct TieringConfig {
  int64_t block_bytes = 0;          // of all ranks
  double low_watermark = 0.1;       // of the pool's blocks: lossless ones below which stores begin
  double high_watermark = 0.2;      // share at which they end
  double job_timeout_seconds = 10;  // a job not acked by then has failed for its waiters
};

struct SchedulerConfig {
  int32_t num_blocks = 0;              // of the pool, the null block (id 0) included
  int32_t block_size = 16;             // tokens
  int32_t max_model_len = 0;           // tokens, prompt and output
  int32_t vocab_size = 0;              // of masks
  int32_t max_num_seqs = 0;            // rows
  int32_t max_num_batched_tokens = 0;  // budget of a step
  int32_t max_num_queued_reqs = 0;     // capacity of the queue; Engine refuses beyond it
  // Prompt tokens that may wait. Engine refuses plain requests beyond it, Turns the turns of
  // sessions, whose length is not known before.
  int64_t max_num_queued_tokens = std::numeric_limits<int64_t>::max();
  // Tokens of a step that has prompts beside decoding sequences, unless many wait; 0: the budget.
  int32_t mixed_step_tokens = 1024;
  // While sequences decode, prompts get fewer tokens still (schedule/pace/prompt_pace.h).
  bool pace_prompts = false;
  int32_t max_partial_prefills = 4;
  // Guesses of a step at most: decoding rows and guesses together are one more. 0: none.
  int32_t step_guesses = 0;
  int32_t hidden_size = 0;       // of the model: words of a sum of hidden states
  int32_t growth_horizon = 128;  // output tokens reserved at admission
  bool prefix_cache = true;
  int32_t num_pages = 0;      // of host memory
  bool pages_arrive = false;  // as Scheduler::OnPagesReady says; false: all are ready at the start
  SessionConfig sessions;
  TieringConfig tiering;
};

// Admission limits: Engine::Submit refuses beyond them, before anything is queued.
struct EngineLimits {
  int32_t max_num_queued_reqs = 0;
  int64_t max_num_queued_tokens = 0;
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;  // token ids of a prompt are below it; 0: not checked
};

}  // namespace quire
