// ModelRunner: runs a checkpoint under tests/testdata/models on one rank, for tests: it plays the
// worker's part with plain vectors. Expected: the values of transformers for the same checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/checkpoint/model_config.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace quire::testing {

struct Expected {
  struct Prompt {
    std::vector<int32_t> tokens;
    std::vector<int32_t> greedy;     // the 64 tokens that follow
    std::vector<double> margins;     // of each, over the second best, in units of the logits' RMS;
                                     // only of checkpoints made for it
    int32_t ranks = 1;               // on which these are the logits
    std::vector<int32_t> positions;  // of tokens + greedy, whose logits are kept
    std::vector<float> logits;       // [positions, vocab_size]
  };
  int32_t vocab_size = 0;
  double bf16_relative_error = 0;  // of transformers in bf16 against itself in f32
  std::vector<Prompt> prompts;
};

// tests/testdata/models/NAME, or the name itself when it is a path.
std::string ModelDir(const std::string& name);
Expected ReadExpected(const std::string& name);

// ||a - b|| / ||b||, in double.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b);

struct RunnerOptions {
  DType weight_dtype = DType::kF32;
  DType activation_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
  int32_t width_multiple = 1;  // as in ModelOptions
  bool eight_bit = false;      // matrices become 8-bit as they are read
};

// A sequence's part of a step: new tokens behind `context` earlier ones, and the indices of those
// of the new tokens whose logits are wanted.
struct Slice {
  int32_t sequence = 0;  // 0, 1 or 2: which blocks it owns
  int32_t context = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> logit_rows;
};

class ModelRunner {
 public:
  // Aborts the test on a load error: the checkpoints here are good.
  ModelRunner(const std::string& name, TpInfo tp, const RunnerOptions& options, Backend& backend);

  // Runs one step; the logits of the wanted rows, in order, [rows, vocab_size].
  std::vector<float> Run(const std::vector<Slice>& slices);
  // Runs `tokens` from the beginning of a sequence in chunks; the logits at `positions`.
  std::vector<float> RunChunked(const std::vector<int32_t>& tokens, int32_t chunk,
                                const std::vector<int32_t>& positions, int32_t sequence = 0);
  // `count` greedy tokens after `tokens`, which are run in chunks first.
  std::vector<int32_t> Greedy(const std::vector<int32_t>& tokens, int32_t chunk, int32_t count);

  const ModelConfig& config() const { return config_; }
  Model& model() { return *model_; }

 private:
  // The logits over the whole vocabulary.
  std::vector<float> WholeRows(TensorView logits);
  template <typename T>
  const T* Upload(const std::vector<T>& values);

  Backend& backend_;
  ModelConfig config_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<Buffer> uploads_;  // of the step under way
  const int32_t* block_table_ = nullptr;
  Buffer block_table_memory_;
  int64_t columns_ = 0;  // of the logits, on this rank
  Buffer logits_;        // [rows, columns_], with room for a copy for each rank
  Buffer whole_;         // of a group: [rows, columns_ * ranks]
};

// The index of the largest of the last `vocab_size` logits.
int32_t ArgMax(const std::vector<float>& logits, int32_t vocab_size);

}  // namespace quire::testing
