// Tokens that stand for a byte, written as <0x00> to <0xFF>.
#pragma once

#include <optional>
#include <string_view>

namespace quire {

// The byte that `token` stands for when text is made, which accepts small hexadecimal digits too.
std::optional<char> ByteOfToken(std::string_view token);
// Whether a model takes `token` for its byte: with capital digits only.
bool IsModelByte(std::string_view token);

}  // namespace quire
