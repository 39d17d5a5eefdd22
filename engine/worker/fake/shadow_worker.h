// ShadowWorker: a StepRunner without a model, for tests of code that makes plans. Every KV slot
// holds a hash of the tokens up to and including its own. Attention is the check that slots 0 ..
// p-1 of a row hold exactly the hashes of the row's tokens; the next token is a function of the
// last hash. A sample that is not finite spoils everything its row computed since the last finite
// sample. A stale, lost, foreign or prematurely freed block, a wrong token run, or a sample at the
// wrong place is therefore a deterministic failure, and the right output of every request is known
// beforehand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/worker/rank/step_runner.h"

namespace quire {

// The function that the shadow worker computes: pure, so that an expected output needs no worker.
struct ShadowModel {
  int32_t vocab_size = 1000;
  int32_t eos_token = 0;
  double eos_probability = 0.0;  // of each token to be EOS, decided by hash
  double nan_probability = 0.0;  // of each row to come back not finite, decided by hash
  // Of each token to be `usual_token`, decided by hash: such outputs repeat themselves.
  double usual_probability = 0.0;
  int32_t usual_token = 1;

  static constexpr uint64_t kNoTokens = 0x51554952452D4B56u;
  // The hash of a prefix and one more token.
  static uint64_t Extend(uint64_t prefix, int32_t token);
  // The token that follows a prefix, never a banned one nor one without a bit in `mask`; an empty
  // mask bars none. Requires that some token is not banned.
  SampleResult Next(uint64_t prefix, uint64_t seed, std::span<const int32_t> banned,
                    std::span<const uint32_t> mask = {}) const;
};

struct ShadowWorkerOptions {
  int32_t num_blocks = 0;  // the null block included
  int32_t block_size = 0;
  int32_t max_num_seqs = 0;
  int32_t max_model_len = 0;
  int32_t max_num_batched_tokens = 0;
  ShadowModel model;
  bool abort_on_violation = true;
};

class ShadowWorker : public StepRunner {
 public:
  explicit ShadowWorker(const ShadowWorkerOptions& options);

  void Run(const StepPlan& plan, StepResult& result) override;
  // A late mask that is not there when the step runs does not come.
  bool AttachMasks(const MaskBoard& board) override {
    masks_ = board;
    return true;
  }
  // The fault of the first bad plan; empty if there was none. After a violation the worker checks
  // and computes nothing, and every sample is token 0.
  const std::string& violation() const { return violation_; }
  // The KV of a block, one hash a slot; for copiers.
  std::span<uint64_t> Block(int32_t block);

 private:
  struct Row {
    bool in_use = false;
    NewRow params;
    std::vector<int32_t> banned;
    std::vector<int32_t> tokens;
    std::vector<uint64_t> prefix;  // [i] hashes the first i tokens
    std::vector<int32_t> blocks;
    int32_t computed = -1;  // -1: nothing yet; the first work says where the row begins
    int32_t finite = 0;     // positions proved by a finite sample, or found in the prefix cache
    bool broken = false;    // a sample was not finite: later samples do not matter
    bool undrawn = false;   // its last draw had no mask, and is to be made again
    uint64_t last_step = 0;
  };

  bool Require(bool ok, const char* what, int32_t row);
  bool RowInUse(int32_t row);
  void ApplyNewRow(const StepPlan& plan, const NewRow& new_row);
  void ApplyTokenRun(const StepPlan& plan, const TokenRun& run);
  void ApplyBlockAdd(const BlockAdd& add);
  void ApplyBlockClone(const StepPlan& plan, const BlockClone& clone);
  // The mask of a work's draw.
  struct Mask {
    std::span<const uint32_t> words;  // empty: none
    bool is_late = false;
    uint32_t word = kMaskAwaited;  // of one that is late
  };
  void RunWork(const RowWork& work, const Mask& mask, StepResult& result);
  Mask MaskOf(const StepPlan& plan, const RowWork& work, size_t* masks);
  void RunUndrawn(Row& row, const RowWork& work);
  bool LacksMask(Row& row, const RowWork& work, const Mask& mask);
  void CheckWork(const RowWork& work);
  void CheckTotals(const StepPlan& plan);
  void Draw(Row& row, const RowWork& work, const Mask& mask, StepResult& result);
  SampleResult Sample(const Row& row, int32_t known, std::span<const uint32_t> mask) const;
  void Spoil(Row& row);
  uint64_t& Slot(const Row& row, int32_t position);
  static void AppendToken(Row& row, int32_t token);

  const ShadowWorkerOptions options_;
  MaskBoard masks_;
  std::vector<uint64_t> slots_;  // [block][offset]
  std::vector<Row> rows_;
  uint64_t last_step_ = 0;
  std::string violation_;
};

}  // namespace quire
