// Unigram: a model that cuts a piece of text into the tokens with the largest sum of scores.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/model/token_model.h"

namespace quire {

class Unigram final : public TokenModel {
 public:
  struct Parts {
    // Tokens and their scores, by id. A token without a score is never found in text.
    std::vector<std::pair<std::string, std::optional<double>>> vocabulary;
    std::optional<int32_t> unknown;
    bool byte_fallback = false;     // an unknown text is its bytes, tokens such as <0xE2>
    bool single_precision = false;  // sums of scores are rounded to 32 bits
  };
  // INVALID_ARGUMENT if the vocabulary is empty or has no unknown token.
  static absl::StatusOr<std::unique_ptr<const Unigram>> Make(const Parts& parts);

  // Linear in the text, times the length of the longest token.
  void Encode(std::string_view text, std::span<const Span> pieces, std::vector<int32_t>* ids,
              std::vector<Span>* spans) const override;

 private:
  // A trie over the bytes of the tokens: the children of a node stand in a row, sorted by byte.
  struct Node {
    uint32_t first_child = 0;
    uint16_t num_children = 0;
    int32_t id = -1;  // of the token that ends here
  };
  // The best way to the end of the first i bytes.
  struct Best {
    double score = 0;
    uint32_t begin = UINT32_MAX;  // of its last token; UINT32_MAX: none yet
    int32_t id = -1;
  };

  explicit Unigram(const Parts& parts);
  void BuildTrie(const std::vector<std::pair<std::string, int32_t>>& sorted);
  int32_t Child(uint32_t node, uint8_t byte) const;  // -1: none
  int32_t Find(std::string_view token) const;        // -1: none
  void FindBest(std::string_view piece, std::vector<Best>* best) const;
  void AddToken(std::string_view token, int32_t id, uint32_t begin, std::vector<int32_t>* ids,
                std::vector<Span>* spans) const;

  std::vector<double> scores_;  // by id; 0 for tokens without one
  double unknown_score_ = 0;
  int32_t unknown_ = 0;
  const bool byte_fallback_, single_precision_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<Node> nodes_;
  std::vector<uint8_t> bytes_;              // by node: the byte that leads to it
  std::array<int32_t, 256> root_children_;  // -1: none
};

}  // namespace quire
