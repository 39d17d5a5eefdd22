// Reads names of bytes, such as <0xE2>.
#include "server/text/model/byte_tokens.h"

namespace quire {
namespace {

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::optional<char> ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = DigitOf(token[3]), low = DigitOf(token[4]);
  if (low < 0) return std::nullopt;
  // The package reads a number, which may have a sign.
  if (token[3] == '+') return static_cast<char>(low);
  if (high < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

bool IsModelByte(std::string_view token) {
  return ByteOfToken(token).has_value() && token.find_first_of("+abcdef") == token.npos;
}

}  // namespace quire
