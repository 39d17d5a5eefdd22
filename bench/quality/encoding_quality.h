// Encoding quality: how far a model in some encoding is from the same model in float32, over the
// next-token distributions of a text. On the CPU, which is the specification of every encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/quality/narrowed_checkpoint.h"
#include "tests/engine/model/model_runner.h"

namespace quire {

// Sums over the tokens of a text that have a token before them in their window.
struct EncodingQuality {
  int64_t tokens = 0;
  int64_t same_best = 0;      // the best next token is that of float32
  double kl = 0;              // sum of KL(float32 || encoding), in nats
  double loss = 0;            // of the text, in nats
  double reference_loss = 0;  // the same in float32

  double mean_kl() const { return kl / static_cast<double>(tokens); }
  double top1_agreement() const {
    return static_cast<double>(same_best) / static_cast<double>(tokens);
  }
  double perplexity() const;
  double reference_perplexity() const;

  // Adds the tokens of one row of logits each. `next`: the token that follows in the text; both
  // logits are of as many tokens.
  void Add(const float* reference, const float* other, int32_t vocab_size, int32_t next);
};

// The tokens of each document of a text file, in the model's tokenizer.json and with its first
// token. Two empty lines stand between documents. An error names the file that cannot be read.
using Documents = std::vector<std::vector<int32_t>>;
absl::StatusOr<Documents> ReadDocuments(const std::string& model, const std::string& path);
// Texts of 256 random tokens each, for a model of random weights.
Documents RandomDocuments(int32_t vocab_size, int32_t count);

// An encoding of a model: as it is loaded and run, or as it is stored.
struct EncodedModel {
  testing::RunnerOptions options;
  std::optional<NarrowForm> stored;  // of a copy of the model
  std::string path;                  // of a checkpoint in the encoding, instead
};

// Runs both over each document, in windows of at most 384 tokens. `model` is a directory whose
// weights are not quantized; the tests' loader ends the program where it cannot be loaded.
EncodingQuality MeasureEncoding(const std::string& model, const Documents& documents,
                                const EncodedModel& encoded);

}  // namespace quire
