// The small normalizers: Prepend, Replace, Strip, Lowercase, StripAccents, ByteLevel.
#pragma once

#include <memory>
#include <string>

#include "server/text/normalize/normalizer.h"
#include "server/text/pattern/pattern.h"

namespace quire {

std::unique_ptr<const Normalizer> MakePrepend(std::string prefix);
// Puts `content` in the place of each match.
std::unique_ptr<const Normalizer> MakeReplace(std::unique_ptr<const Pattern> pattern,
                                              std::string content);
// Removes white space at the ends.
std::unique_ptr<const Normalizer> MakeStrip(bool left, bool right);
std::unique_ptr<const Normalizer> MakeLowercase();
// Writes each byte in the byte alphabet.
std::unique_ptr<const Normalizer> MakeByteAlphabet();
// Removes combining marks.
std::unique_ptr<const Normalizer> MakeStripAccents();

}  // namespace quire
