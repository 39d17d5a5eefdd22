// NfcNormalizer: NFC, Unicode's canonical composed form, with the origin of each normalized byte in
// the text. Code points assigned after Unicode 9.0 stay unchanged, as in the `tokenizers` package.
// Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/text/tokenizer.h"

namespace quire {

class NfcNormalizer {
 public:
  // The one instance; its tables are built on first use (about 10 ms).
  static const NfcNormalizer& Get();

  // False if `text` (valid UTF-8) is certainly in NFC.
  bool MayChange(std::string_view text) const;
  // Writes the normal form of `text` to `out`. If `origin` is given, it gets one entry per byte of
  // `out`: the code point of `text` that the byte belongs to.
  void Normalize(std::string_view text, std::string* out, std::vector<TokenOffset>* origin) const;

 private:
  // A code point during normalization. `change` is the number of code points that it adds to the
  // text: 0 if it replaces one, 1 if it is inserted, -n if it replaces n + 1.
  struct Mark {
    char32_t value;
    uint8_t combining_class;
    int change;
  };

  NfcNormalizer();
  std::vector<Mark> Decompose(std::string_view text) const;
  std::vector<Mark> Compose(const std::vector<Mark>& decomposed) const;
  bool IsActive(char32_t c) const { return c < kTableSize && (flags_[c] & kActive) != 0; }
  char32_t ComposePair(char32_t first, char32_t second) const;  // 0: they do not compose

  static constexpr char32_t kTableSize = 0x2FA20;  // past the last code point that decomposes
  static constexpr uint8_t kActive = 1;            // may make a text differ from its normal form
  static constexpr uint8_t kDecomposes = 2;
  std::vector<uint8_t> flags_;            // by code point
  std::vector<uint8_t> combining_class_;  // by code point
  std::unordered_map<uint64_t, char32_t> pairs_;
};

}  // namespace quire
