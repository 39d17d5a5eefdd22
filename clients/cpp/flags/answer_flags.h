// AnswerFlags: what `quire generate` and `chat` do with the reasoning before an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flags/flag.h"

namespace quire::cli {

struct AnswerFlags {
  bool split_reasoning = true;  // as the server does by default; false: it is part of the text
  bool show_reasoning = false;
  std::optional<uint32_t> max_tokens, min_tokens;  // of reasoning
};

// `flags` outlives the rows.
std::vector<flags::Flag> AnswerRows(AnswerFlags* flags);

}  // namespace quire::cli
