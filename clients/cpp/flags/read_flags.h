// The flags of `quire score` and `quire embed`, and their rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flags/program.h"

namespace quire::cli {

struct ReadFlags {
  std::vector<std::string> texts;   // from stdin, a line each, when there are none
  std::vector<uint32_t> token_ids;  // when given, the one item
  bool special_tokens = true;       // add BOS and the like
  std::optional<int32_t> priority;
  std::optional<uint32_t> top_logprobs;  // of score
  std::string pooling = "last";          // of embed
  bool normalize = true;                 // of embed
};

// The rows set `flags`, which outlives them.
flags::Command ScoreCommand(ReadFlags* flags);
flags::Command EmbedCommand(ReadFlags* flags);

}  // namespace quire::cli
