// Hand-written splitters for the patterns of GPT-2, Llama 3 and Qwen, and for digits.
#pragma once

#include <memory>
#include <string_view>

#include "server/text/pieces/piece_splitter.h"

namespace quire {

extern const char kGpt2Pattern[];
extern const char kLlama3Pattern[];
extern const char kQwen2Pattern[];

// The scanner for a pattern that equals one of the three above, else nullptr.
std::unique_ptr<const PieceSplitter> MakeScanner(std::string_view pattern);

// Separates numeric code points from other text: each alone if `individual`, else in runs.
std::unique_ptr<const PieceSplitter> MakeDigitSplitter(bool individual);

}  // namespace quire
