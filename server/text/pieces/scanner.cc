// Hand-written scanners for the patterns of GPT-2, Llama 3 and their like, and for digits; and the
// list of all patterns with a scanner. Each turn of a loop tries the branches of the pattern in
// order and emits one piece.
#include "server/text/pieces/scanner.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "server/text/pieces/char_reader.h"
#include "server/text/pieces/kind_scanner.h"
#include "server/text/unicode/unicode.h"

namespace quire {

const char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char kLlama3Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
    R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)"
    R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char kSeedPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kO200kPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kTekkenPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kDeepSeekPattern[] =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kDeepSeekCjkPattern[] = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";

namespace {

// Reads classes from a position in valid UTF-8.
class Reader {
 public:
  explicit Reader(std::string_view text)
      : table_(CharClasses()),
        ascii_(table_.pages[table_.page_of[0]].data()),
        end_(text.data() + text.size()) {}

  const char* end() const { return end_; }
  CharClass ClassAt(const char* p) const {
    const uint8_t byte = static_cast<uint8_t>(*p);
    return byte < 0x80 ? ascii_[byte] : ClassOf(table_, DecodeUtf8(p).value);
  }
  bool Is(const char* p, CharClass wanted) const { return p < end_ && ClassAt(p) == wanted; }
  // Past the longest run of `wanted` from p, at most `limit` code points.
  const char* Run(const char* p, CharClass wanted, size_t limit = SIZE_MAX) const {
    for (; limit > 0 && p < end_; --limit) {
      const uint8_t byte = static_cast<uint8_t>(*p);
      if (byte < 0x80) {
        if (ascii_[byte] != wanted) break;
        ++p;
      } else {
        const CodePoint c = DecodeUtf8(p);
        if (ClassOf(table_, c.value) != wanted) break;
        p += c.size;
      }
    }
    return p;
  }

 private:
  const CharClassTable& table_;
  const CharClass* const ascii_;
  const char* const end_;
};

// Cuts each piece where `piece_end(reader, p)` says that the part from p ends.
template <class PieceEnd>
absl::Status Scan(std::string_view text, std::span<const Span> pieces, std::vector<Span>* out,
                  const PieceEnd& piece_end) {
  CutPieces(text, pieces, out,
            [&](std::string_view part, const char* p) { return piece_end(Reader(part), p); });
  return absl::OkStatus();
}

class Gpt2Scanner final : public PieceSplitter {
 public:
  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    return Scan(text, pieces, out,
                [](const Reader& reader, const char* p) { return PieceEnd(reader, p); });
  }

 private:
  static const char* PieceEnd(const Reader& reader, const char* p) {
    if (*p == '\'') {
      if (const size_t size = ContractionSize(p, reader.end(), /*any_case=*/false)) return p + size;
    }
    const char* const body = p + (*p == ' ');
    if (body < reader.end()) {
      const CharClass kind = reader.ClassAt(body);
      if (kind != CharClass::kSpace) return reader.Run(body, kind);
    }
    return SpacesEnd(p, reader.Run(p, CharClass::kSpace), reader.end(), /*newlines=*/false);
  }
};

class Llama3Scanner final : public PieceSplitter {
 public:
  // In these the models that use the pattern differ.
  struct Rules {
    size_t max_digits;     // in a piece
    bool newlines = true;  // punctuation takes the newlines after it
  };
  explicit Llama3Scanner(const Rules& rules) : rules_(rules) {}

  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    return Scan(text, pieces, out,
                [this](const Reader& reader, const char* p) { return PieceEnd(reader, p); });
  }

 private:
  const char* PieceEnd(const Reader& reader, const char* p) const {
    if (*p == '\'') {
      if (const size_t size = ContractionSize(p, reader.end(), /*any_case=*/true)) return p + size;
    }
    const CharClass kind = reader.ClassAt(p);
    if (kind == CharClass::kLetter) return reader.Run(p, CharClass::kLetter);
    if (kind == CharClass::kNumber) return reader.Run(p, CharClass::kNumber, rules_.max_digits);
    if (!IsNewline(*p)) {
      const char* const next = NextChar(p);
      if (reader.Is(next, CharClass::kLetter)) return reader.Run(next, CharClass::kLetter);
    }
    const char* const body = p + (*p == ' ');
    if (reader.Is(body, CharClass::kOther)) {
      const char* end = reader.Run(body, CharClass::kOther);
      while (rules_.newlines && end < reader.end() && IsNewline(*end)) ++end;
      return end;
    }
    return SpacesEnd(p, reader.Run(p, CharClass::kSpace), reader.end(), /*newlines=*/true);
  }

  const Rules rules_;
};

class DigitSplitter final : public PieceSplitter {
 public:
  explicit DigitSplitter(size_t limit) : limit_(limit) {}

  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    return Scan(text, pieces, out, [this](const Reader& reader, const char* p) {
      if (reader.ClassAt(p) == CharClass::kNumber) {
        return reader.Run(p, CharClass::kNumber, limit_);
      }
      while (p < reader.end() && reader.ClassAt(p) != CharClass::kNumber) p = NextChar(p);
      return p;
    });
  }

 private:
  const size_t limit_;
};

}  // namespace

std::unique_ptr<const PieceSplitter> MakeScanner(std::string_view pattern, bool drops_rest) {
  // Some files write a newline as itself.
  const std::string written = absl::StrReplaceAll(absl::string_view(pattern.data(), pattern.size()),
                                                  {{"\r", "\\r"}, {"\n", "\\n"}});
  using Rules = Llama3Scanner::Rules;
  if (written == kGpt2Pattern) return std::make_unique<Gpt2Scanner>();
  if (written == kLlama3Pattern) return std::make_unique<Llama3Scanner>(Rules{.max_digits = 3});
  if (written == kQwen2Pattern) return std::make_unique<Llama3Scanner>(Rules{.max_digits = 1});
  if (written == kSeedPattern) {
    return std::make_unique<Llama3Scanner>(Rules{.max_digits = 1, .newlines = false});
  }
  if (written == kO200kPattern) return MakeCasedScanner(/*max_digits=*/3, /*contractions=*/true);
  if (written == kTekkenPattern) return MakeCasedScanner(/*max_digits=*/1, /*contractions=*/false);
  if (drops_rest) return nullptr;
  if (written == kDeepSeekPattern) return MakePunctuationScanner();
  if (written == kDeepSeekCjkPattern) return MakeCjkSplitter();
  if (written == "\\p{N}{1,3}") return std::make_unique<DigitSplitter>(3);
  if (written == "\\p{N}") return std::make_unique<DigitSplitter>(1);
  if (written == "\\p{N}+") return std::make_unique<DigitSplitter>(SIZE_MAX);
  return nullptr;
}

std::unique_ptr<const PieceSplitter> MakeDigitSplitter(bool individual) {
  return std::make_unique<DigitSplitter>(individual ? 1 : SIZE_MAX);
}

}  // namespace quire
