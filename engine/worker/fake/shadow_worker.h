// ShadowWorker: a StepRunner without a model, for tests of whoever makes plans. Every KV slot holds
// a hash of the tokens up to and including its own, attention is the check that slots 0 .. p-1 of a
// row carry exactly the hashes of the row's tokens, and the next token is a function of the last
// hash. What a row computed since its last finite sample is spoilt by one that is not finite. A
// stale, lost, foreign or prematurely freed block, a wrong token run, or a sample at the wrong
// place is therefore a deterministic failure, and the right output of every request is known
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

  static constexpr uint64_t kNoTokens = 0x51554952452D4B56u;
  // The hash of a prefix and one more token.
  static uint64_t Extend(uint64_t prefix, int32_t token);
  // What follows a prefix. Never a banned token; requires fewer banned tokens than the vocabulary
  // has.
  SampleResult Next(uint64_t prefix, uint64_t seed, std::span<const int32_t> banned) const;
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
  // What the first bad plan did wrong; empty if there was none. After a violation nothing is
  // checked or computed any more, and every sample is token 0.
  const std::string& violation() const { return violation_; }
  // The KV of a block, a hash a slot; for who copies blocks.
  std::span<uint64_t> Block(int32_t block);

 private:
  struct Row {
    bool in_use = false;
    NewRow params;
    std::vector<int32_t> banned;
    std::vector<int32_t> tokens;
    std::vector<uint64_t> prefix;  // [i] hashes the first i tokens
    std::vector<int32_t> blocks;
    int32_t computed = -1;  // -1: nothing yet, so its first work says where it begins
    int32_t finite = 0;     // positions that a finite sample has proved, or that were found
    bool broken = false;    // a sample was not finite: what follows does not matter
    uint64_t last_step = 0;
  };

  bool Require(bool ok, const char* what, int32_t row);
  bool RowInUse(int32_t row);
  void ApplyNewRow(const StepPlan& plan, const NewRow& new_row);
  void ApplyTokenRun(const StepPlan& plan, const TokenRun& run);
  void ApplyBlockAdd(const BlockAdd& add);
  void ApplyBlockClone(const StepPlan& plan, const BlockClone& clone);
  void RunWork(const RowWork& work, StepResult& result);
  void CheckWork(const RowWork& work);
  void CheckTotals(const StepPlan& plan);
  SampleResult Sample(const Row& row) const;
  void Spoil(Row& row);
  uint64_t& Slot(const Row& row, int32_t position);
  static void AppendToken(Row& row, int32_t token);

  const ShadowWorkerOptions options_;
  std::vector<uint64_t> slots_;  // [block][offset]
  std::vector<Row> rows_;
  uint64_t last_step_ = 0;
  std::string violation_;
};

}  // namespace quire
