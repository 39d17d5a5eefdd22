// Splitters for the patterns of scanner.h that tell capital letters, marks, punctuation or scripts
// apart.
#pragma once

#include <cstddef>
#include <memory>

#include "server/text/pieces/piece_splitter.h"

namespace quire {

// The patterns of o200k and Tekken: words end before a capital letter that follows a small one.
// Numbers have at most `max_digits` code points. With `contractions` a word takes the contraction
// after it.
std::unique_ptr<const PieceSplitter> MakeCasedScanner(size_t max_digits, bool contractions);

// The last pattern of DeepSeek V3. Text between its matches makes pieces too.
std::unique_ptr<const PieceSplitter> MakePunctuationScanner();

// Separates runs of Han, Hiragana and Katakana as DeepSeek V3 lists them.
std::unique_ptr<const PieceSplitter> MakeCjkSplitter();

}  // namespace quire
