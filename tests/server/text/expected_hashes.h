// The hashes that scripts record of what other tokenizers answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

constexpr int kStrings = 20000;  // of each tokenizer
constexpr int kBlock = 20;       // strings that share a hash, in the newer files

// FNV-1a over values, folded to 32 bits.
class ExpectedHash {
 public:
  void Add(uint64_t value) { state_ = (state_ ^ value) * 0x100000001B3u; }
  void Add(const std::string& bytes) {
    for (const char byte : bytes) Add(static_cast<uint8_t>(byte));
  }
  uint32_t value() const { return static_cast<uint32_t>(state_ ^ state_ >> 32); }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

// 32-bit values, little endian; empty if the file cannot be read.
std::vector<uint32_t> ReadExpected(const std::string& path);

// `text` with \x escapes for all but printable ASCII.
std::string Escaped(const std::string& text);

}  // namespace quire
