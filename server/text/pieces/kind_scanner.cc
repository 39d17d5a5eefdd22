// Each turn of a loop tries the branches of the pattern in order and emits one piece.
#include "server/text/pieces/kind_scanner.h"

#include "server/text/pieces/char_reader.h"
#include "server/text/unicode/char_kinds.h"

namespace quire {
namespace {

constexpr CharKinds kLetters = SetOf(CharKind::kUpper, CharKind::kLower, CharKind::kCaseless);
constexpr CharKinds kBothCases = SetOf(CharKind::kCaseless, CharKind::kMark);
constexpr CharKinds kCapital = kBothCases | SetOf(CharKind::kUpper);
constexpr CharKinds kSmall = kBothCases | SetOf(CharKind::kLower);
constexpr CharKinds kPunctuation = SetOf(CharKind::kPunctuation, CharKind::kSymbol);
// [^\s\p{L}\p{N}]
constexpr CharKinds kOthers = kPunctuation | SetOf(CharKind::kMark) | SetOf(CharKind::kOther);

// Reads kinds from a position in valid UTF-8.
class KindReader {
 public:
  explicit KindReader(std::string_view text)
      : table_(KindsOfChars()),
        ascii_(table_.pages[table_.page_of[0]].data()),
        end_(text.data() + text.size()) {}

  const char* end() const { return end_; }
  CharKinds At(const char* p) const {
    const uint8_t byte = static_cast<uint8_t>(*p);
    return SetOf(byte < 0x80 ? ascii_[byte] : table_.Of(DecodeUtf8(p).value));
  }
  bool Is(const char* p, CharKinds wanted) const { return p < end_ && (At(p) & wanted) != 0; }
  // Past the longest run of `wanted` from p, at most `limit` code points.
  const char* Run(const char* p, CharKinds wanted, size_t limit = SIZE_MAX) const {
    for (; limit > 0 && Is(p, wanted); --limit) p = NextChar(p);
    return p;
  }

 private:
  const CharKindTable& table_;
  const CharKind* const ascii_;
  const char* const end_;
};

class CasedScanner final : public PieceSplitter {
 public:
  CasedScanner(size_t max_digits, bool contractions)
      : max_digits_(max_digits), contractions_(contractions) {}

  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    CutPieces(text, pieces, out, [this](std::string_view part, const char* p) {
      return PieceEnd(KindReader(part), p);
    });
    return absl::OkStatus();
  }

 private:
  // The end of `[capital]*[small]+` from p, nullptr if it does not match. After the longest run of
  // capitals no small letter may follow; then the last one of both cases is taken for it.
  static const char* SmallEnd(const KindReader& reader, const char* p) {
    const char* after_both = nullptr;
    while (true) {
      if (!reader.Is(p, kCapital)) break;
      const bool both = reader.Is(p, kBothCases);
      p = NextChar(p);
      if (both) after_both = p;
    }
    return reader.Is(p, SetOf(CharKind::kLower)) ? reader.Run(p, kSmall) : after_both;
  }

  // The end of the first two branches, nullptr if neither matches.
  static const char* WordEnd(const KindReader& reader, const char* p) {
    const bool prefixed = !IsNewline(*p) && !reader.Is(p, kLetters | SetOf(CharKind::kNumber));
    const char* const body = prefixed ? NextChar(p) : p;
    if (const char* end = SmallEnd(reader, body)) return end;
    if (prefixed) {
      if (const char* end = SmallEnd(reader, p)) return end;
    }
    const char* const end = reader.Run(body, kCapital);
    return end > body ? end : nullptr;
  }

  const char* PieceEnd(const KindReader& reader, const char* p) const {
    if (const char* end = WordEnd(reader, p)) {
      const bool apostrophe = contractions_ && end < reader.end() && *end == '\'';
      return apostrophe ? end + ContractionSize(end, reader.end(), /*any_case=*/true) : end;
    }
    if (reader.Is(p, SetOf(CharKind::kNumber))) {
      return reader.Run(p, SetOf(CharKind::kNumber), max_digits_);
    }
    const char* const body = p + (*p == ' ');
    if (reader.Is(body, kOthers)) {
      const char* end = reader.Run(body, kOthers);
      while (end < reader.end() && (IsNewline(*end) || *end == '/')) ++end;
      return end;
    }
    return SpacesEnd(p, reader.Run(p, SetOf(CharKind::kSpace)), reader.end(), /*newlines=*/true);
  }

  const size_t max_digits_;
  const bool contractions_;
};

class PunctuationScanner final : public PieceSplitter {
 public:
  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    CutPieces(text, pieces, out, [](std::string_view part, const char* p) {
      const KindReader reader(part);
      const char* end = MatchEnd(reader, p);
      if (end != nullptr) return end;
      // Text without a match is one piece up to the next match.
      do {
        p = NextChar(p);
      } while (p < reader.end() && MatchEnd(reader, p) == nullptr);
      return p;
    });
    return absl::OkStatus();
  }

 private:
  static bool IsAsciiLetter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

  // The end of the match at p, nullptr if there is none.
  static const char* MatchEnd(const KindReader& reader, const char* p) {
    constexpr CharKinds kWord = kLetters | SetOf(CharKind::kMark);
    const bool punctuation = reader.Is(p, kPunctuation);
    if (punctuation && static_cast<uint8_t>(*p) < 0x80) {
      const char* end = p + 1;
      while (end < reader.end() && IsAsciiLetter(*end)) ++end;
      if (end > p + 1) return end;
    }
    // A mark before a word may also be the code point that the pattern takes first: the same match.
    if (reader.Is(p, kWord)) return reader.Run(p, kWord);
    if (!punctuation && !IsNewline(*p) && reader.Is(NextChar(p), kWord)) {
      return reader.Run(NextChar(p), kWord);
    }
    const char* const body = p + (*p == ' ');
    if (reader.Is(body, kPunctuation)) {
      const char* end = reader.Run(body, kPunctuation);
      while (end < reader.end() && IsNewline(*end)) ++end;
      return end;
    }
    const char* const spaces = reader.Run(p, SetOf(CharKind::kSpace));
    return spaces > p ? SpacesEnd(p, spaces, reader.end(), /*newlines=*/true) : nullptr;
  }
};

class CjkSplitter final : public PieceSplitter {
 public:
  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    CutPieces(text, pieces, out, [](std::string_view part, const char* p) {
      const bool first = IsCjk(p);
      do {
        p = NextChar(p);
      } while (p < part.data() + part.size() && IsCjk(p) == first);
      return p;
    });
    return absl::OkStatus();
  }

 private:
  static bool IsCjk(const char* p) {
    if (static_cast<uint8_t>(*p) < 0xE0) return false;  // below U+0800
    const char32_t c = DecodeUtf8(p).value;
    return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
  }
};

}  // namespace

std::unique_ptr<const PieceSplitter> MakeCasedScanner(size_t max_digits, bool contractions) {
  return std::make_unique<CasedScanner>(max_digits, contractions);
}

std::unique_ptr<const PieceSplitter> MakePunctuationScanner() {
  return std::make_unique<PunctuationScanner>();
}

std::unique_ptr<const PieceSplitter> MakeCjkSplitter() { return std::make_unique<CjkSplitter>(); }

}  // namespace quire
