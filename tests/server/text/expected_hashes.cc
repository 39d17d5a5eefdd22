// Reads hashes and shows texts.
#include "tests/server/text/expected_hashes.h"

#include <cstdio>
#include <fstream>
#include <iterator>

namespace quire {

std::vector<uint32_t> ReadExpected(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<uint32_t> out;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    out.push_back(value);
  }
  return out;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char byte : text) {
    char cell[8];
    const bool plain = byte >= 0x20 && byte < 0x7F && byte != '\\';
    snprintf(cell, sizeof cell, plain ? "%c" : "\\x%02X", static_cast<uint8_t>(byte));
    out += cell;
  }
  return out;
}

}  // namespace quire
