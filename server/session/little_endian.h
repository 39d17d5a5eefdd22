// LittleEndian: numbers and short strings as the bytes of the server's own files, little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// A longer string is cut when it is written, and refused when it is read.
inline constexpr size_t kMaxStringBytes = 256;

template <typename Int>
void PutInt(Int value, std::string* out) {
  for (size_t i = 0; i < sizeof(Int); ++i) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename Int>
Int GetInt(const char* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Int); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return static_cast<Int>(value);
}

inline void PutDouble(double value, std::string* out) {
  PutInt(std::bit_cast<uint64_t>(value), out);
}

inline void PutString(const std::string& text, std::string* out) {
  const std::string kept = text.substr(0, kMaxStringBytes);
  PutInt(static_cast<uint16_t>(kept.size()), out);
  *out += kept;
}

// 16 digits.
inline std::string Hex(uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(value >> shift) & 15];
  return text;
}

// Reads fields in order; a missing or impossible field is 0 or empty, and Complete() false.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Int>
  Int Number() {
    const std::string_view bytes = Bytes(sizeof(Int));
    return ok_ ? GetInt<Int>(bytes.data()) : Int{0};
  }
  double Double() { return std::bit_cast<double>(Number<uint64_t>()); }
  int32_t Count() {
    const auto value = Number<uint32_t>();
    ok_ = ok_ && value <= uint32_t{1} << 30;
    return ok_ ? static_cast<int32_t>(value) : 0;
  }
  std::string Text() {
    const auto size = Number<uint16_t>();
    ok_ = ok_ && size <= kMaxStringBytes;
    return std::string(Bytes(ok_ ? size : 0));
  }
  bool Complete() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view Bytes(size_t size) {
    ok_ = ok_ && bytes_.size() >= size;
    if (!ok_) return {};
    const std::string_view bytes = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return bytes;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace quire
