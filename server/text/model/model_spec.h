// ModelSpec: the `model` of a tokenizer, read and checked: the vocabulary and how text becomes its
// tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"

namespace quire {

struct ModelSpec {
  enum class Kind : uint8_t { kBpe, kUnigram };
  // Of equal ranks the merge further left comes first; all merges of one rank have one result.
  struct Merge {
    std::string left, right;
    uint32_t rank;
  };

  Kind kind = Kind::kBpe;
  std::vector<std::pair<std::string, int32_t>> vocabulary;  // tokens as written, and their ids
  std::vector<Merge> merges;                                // BPE
  // Unigram, by place in `vocabulary`; nullopt: the token is never found in text.
  std::vector<std::optional<double>> scores;
  // Unigram: sums of scores are rounded to 32 bits, as SentencePiece does and `tokenizers` does
  // not.
  bool single_precision = false;
  std::optional<std::string> unknown;  // the unknown token
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// The value of `model`; INVALID_ARGUMENT names the first part that is not supported.
absl::StatusOr<ModelSpec> ReadModelSpec(const JsonNode& node);

}  // namespace quire
