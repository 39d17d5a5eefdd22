// The inverse of the byte alphabet, as a table over its code points.
#include "server/text/unicode/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

// Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 and up.
constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kOutside = -1;
constexpr std::array<int16_t, 0x144> MakeByteOf() {
  std::array<int16_t, 0x144> byte_of{};
  for (auto& entry : byte_of) entry = kOutside;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    byte_of[StandsForItself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}
constexpr std::array<int16_t, 0x144> kByteOf = MakeByteOf();

constexpr std::array<uint16_t, 256> MakeWritten() {
  std::array<uint16_t, 256> written{};
  for (size_t c = 0; c < kByteOf.size(); ++c) {
    if (kByteOf[c] != kOutside) written[static_cast<size_t>(kByteOf[c])] = static_cast<uint16_t>(c);
  }
  return written;
}
constexpr std::array<uint16_t, 256> kWritten = MakeWritten();

}  // namespace

std::optional<std::string> BytesOfToken(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (size_t at = 0; at < token.size();) {
    const CodePoint c = DecodeUtf8(token.data() + at);
    if (c.value >= kByteOf.size() || kByteOf[c.value] == kOutside) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf[c.value]));
    at += c.size;
  }
  return bytes;
}

void AppendWritten(uint8_t byte, std::string* out) { AppendUtf8(kWritten[byte], out); }

}  // namespace quire
