// UnicodeForm: the normalizers NFC, NFD, NFKC and NFKD, Unicode's canonical and compatible forms.
// Code points assigned after Unicode 9.0 stay unchanged, as in the `tokenizers` package. Immutable;
// any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "server/text/normalize/normalizer.h"

namespace quire {

class UnicodeForm final : public Normalizer {
 public:
  enum class Kind : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
  struct Name {
    const char* name;
    Kind kind;
  };
  static constexpr Name kNames[] = {
      {"NFC", Kind::kNfc}, {"NFD", Kind::kNfd}, {"NFKC", Kind::kNfkc}, {"NFKD", Kind::kNfkd}};

  // The tables are built on first use (about 20 ms) and shared.
  explicit UnicodeForm(Kind kind);

  bool MayChange(std::string_view text) const override;
  absl::Status Apply(NormalizedText* text) const override;

 private:
  class Tables;

  // A code point on its way, with its combining class.
  struct Mark {
    CharChange c;
    uint8_t combining_class;
  };
  std::vector<Mark> Decompose(std::string_view text) const;
  std::vector<Mark> Compose(const std::vector<Mark>& decomposed) const;

  const Tables& tables_;
  const bool compatible_, composed_;
  const uint8_t active_;  // the flag of code points that may make a text differ from this form
};

}  // namespace quire
