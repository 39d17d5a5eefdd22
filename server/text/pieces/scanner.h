// Hand-written splitters for the patterns of published tokenizers, and for digits.
#pragma once

#include <memory>
#include <string_view>

#include "server/text/pieces/piece_splitter.h"

namespace quire {

extern const char kGpt2Pattern[];
extern const char kLlama3Pattern[];
extern const char kQwen2Pattern[];
extern const char kSeedPattern[];    // Seed-OSS, Seed-Coder
extern const char kO200kPattern[];   // GPT-4o, gpt-oss, Llama 4
extern const char kTekkenPattern[];  // Mistral NeMo, Small 3
// The last two splits of DeepSeek V3, after the one of digits.
extern const char kDeepSeekPattern[];
extern const char kDeepSeekCjkPattern[];

// The scanner that splits as `pattern` does with the behavior Isolated, nullptr if there is none.
// With `drops_rest`, only for a pattern that leaves no text between its matches.
std::unique_ptr<const PieceSplitter> MakeScanner(std::string_view pattern, bool drops_rest = false);

// Separates numeric code points from other text: each alone if `individual`, else in runs.
std::unique_ptr<const PieceSplitter> MakeDigitSplitter(bool individual);

}  // namespace quire
