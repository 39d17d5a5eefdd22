// The byte alphabet of byte-level vocabularies: each of the 256 bytes is written as one printable
// code point (a space as U+0120, a line feed as U+010A, letters as themselves).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// The bytes that a vocabulary entry (valid UTF-8) stands for; nullopt if it contains a code point
// outside the alphabet, as special tokens may.
std::optional<std::string> BytesOfToken(std::string_view token);
// Appends the code point that stands for `byte`.
void AppendWritten(uint8_t byte, std::string* out);

}  // namespace quire
