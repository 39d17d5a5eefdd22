// The checkpoints of tests that compare a GPU with transformers: every family and every shape of
// tests/engine/model/checkpoints.h, as wide as kernels want them. tests/gpu/run makes them in
// build/gpu-models (make_checkpoints.py --wide); the tests run from the repository's root. Those
// with matrices of 4 and 8 bits are the narrow ones of tests/testdata/models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/model/capability_check.h"
#include "engine/model/checkpoint/model_config.h"
#include "tests/engine/model/checkpoints.h"
#include "tests/engine/model/model_runner.h"
#include "tests/engine/model/narrow_checkpoints.h"

namespace quire::testing {

inline constexpr int32_t kWhole = 1000;  // a chunk longer than any prompt
inline constexpr int32_t kMaxTokens = 512, kMaxRows = 64;

// The bound of logits: the distance of transformers in bf16 from transformers in float32, times
// this. The backend rounds no more often, and half as much again covers another order of sums.
inline constexpr double kErrorsAllowed = 1.5;
// The same of the narrow checkpoints, of 64 columns and few prompts: two such errors of the same
// kind differ more. A wrong scale of a row, that of its neighbour, in one matrix exceeds this bound
// in every form with scales of rows or groups.
inline constexpr double kNarrowErrorsAllowed = 2;

// A token is clear if the reference's best logit leads by more than this many of its own errors in
// bf16. Below that another order of roundings may choose another token: the best and the second
// logit of a row are each wrong by the relative error times the row's RMS, and chance does not
// exceed five standard deviations of that.
inline constexpr double kClearErrors = 7;

// The families, the shapes, and a vocabulary whose logits are too many to keep in the tree.
inline std::vector<TestCheckpoint> WideCheckpoints() {
  std::vector<TestCheckpoint> all(std::begin(kCheckpoints), std::end(kCheckpoints));
  all.insert(all.end(), std::begin(kShapes), std::end(kShapes));
  all.push_back({"shape-vocabulary", "", "a vocabulary of 262,144", 64});
  return all;
}

inline std::string WideDir(const TestCheckpoint& checkpoint) {
  return absl::StrCat("build/gpu-models/", checkpoint.name);
}

// Weights, activations and KV in the type that the checkpoint is about.
inline RunnerOptions WideOptions(const TestCheckpoint& checkpoint) {
  const DType dtype = std::string(checkpoint.name) == "llama-f16" ? DType::kF16 : DType::kBF16;
  return {.weight_dtype = dtype,
          .activation_dtype = dtype,
          .kv_dtype = dtype,
          .width_multiple = kCudaLimits.width_multiple};
}

// Activations of 16 bits, and keys and values as the expected logits have them.
inline RunnerOptions NarrowOptions(const NarrowCheckpoint& checkpoint, const ModelConfig& config) {
  return {.weight_dtype = DType::kBF16,
          .activation_dtype = DType::kBF16,
          .kv_dtype = checkpoint.KvDtype(DType::kBF16),
          .width_multiple = kCudaLimits.MlpMultiple(config.quantization.eight_bit())};
}

// Why the kernels, or the ranks, do not take the model: as at the start of a server.
inline absl::Status CheckWide(const ModelConfig& config, int32_t ranks,
                              const RunnerOptions& options) {
  const absl::Status divides = config.CheckTensorParallel(ranks);
  if (!divides.ok()) return divides;
  return CheckDeviceCan({.model = config,
                         .ranks = ranks,
                         .weight_dtype = options.weight_dtype,
                         .kv_dtype = options.kv_dtype,
                         .max_num_seqs = kMaxRows,
                         .max_num_batched_tokens = kMaxTokens,
                         .max_model_len = kMaxTokens},
                        kCudaLimits);
}

// The prompt and its continuation without the last token.
inline std::vector<int32_t> Known(const Expected::Prompt& prompt) {
  std::vector<int32_t> ids = prompt.tokens;
  ids.insert(ids.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
  return ids;
}

// The largest relative error of the kept logits over the prompts.
inline double WorstError(const Expected& expected, ModelRunner& runner) {
  double worst = 0;
  for (const Expected::Prompt& prompt : expected.prompts) {
    const std::vector<float> logits = runner.RunChunked(Known(prompt), kWhole, prompt.positions);
    worst = std::max(worst, RelativeError(logits, prompt.logits));
  }
  return worst;
}

// The same of the logits that a narrow checkpoint has on so many ranks: the reference is the
// float64 of numpy, and its own error that of numpy in bf16. Integers that are multiplied by wide
// activations give the same logits on any number.
inline double WorstNarrowError(const Expected& expected, int32_t ranks, ModelRunner& runner) {
  const bool any = !runner.config().quantization.eight_bit();
  double worst = 0;
  for (const Expected::Prompt& prompt : expected.prompts) {
    if (!any && prompt.ranks != ranks) continue;
    const std::vector<float> logits = runner.RunChunked(prompt.tokens, kWhole, prompt.positions);
    worst = std::max(worst, RelativeError(logits, prompt.logits));
  }
  CHECK_GT(worst, 0);
  return worst;
}

struct ClearTokens {
  int32_t clear = 0;
  int32_t total = 0;
  std::vector<std::string> wrong;  // which clear tokens are others
};

// Feeds the reference's own continuation, so that one unclear token does not hide the rest.
inline ClearTokens CompareClearTokens(const Expected& expected, ModelRunner& runner) {
  ClearTokens found;
  for (const Expected::Prompt& prompt : expected.prompts) {
    CHECK_EQ(prompt.margins.size(), prompt.greedy.size());
    const std::vector<int32_t> known = Known(prompt);
    const auto prompt_len = static_cast<int32_t>(prompt.tokens.size());
    runner.RunChunked(prompt.tokens, kWhole, {});
    for (size_t i = 0; i < prompt.greedy.size(); ++i) {
      const int32_t position = prompt_len - 1 + static_cast<int32_t>(i);
      const std::vector<float> logits =
          runner.Run({{.context = position,
                       .tokens = {known[static_cast<size_t>(position)]},
                       .logit_rows = {0}}});
      ++found.total;
      if (prompt.margins[i] < kClearErrors * expected.bf16_relative_error) continue;
      ++found.clear;
      if (ArgMax(logits, expected.vocab_size) == prompt.greedy[i]) continue;
      found.wrong.push_back(absl::StrCat("token ", i, " after ", prompt_len));
    }
  }
  return found;
}

}  // namespace quire::testing
