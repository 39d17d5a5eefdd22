// Hand-written scanners for the patterns of GPT-2, Llama 3 and Qwen, and for single digits. Each
// turn of a loop tries the branches of the pattern in order and emits one piece.
#include "server/text/pieces/scanner.h"

#include <cstring>

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
  const char* Next(const char* p) const {
    return p + (static_cast<uint8_t>(*p) < 0x80 ? 1 : DecodeUtf8(p).size);
  }
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
  // `\s+(?!\S)|\s+` for white space in [p, run_end): all of it before the end of the text, else all
  // but its last code point, which then goes with what follows; a single one is taken.
  const char* Spaces(const char* p, const char* run_end) const {
    if (run_end == end_) return run_end;
    const char* last = run_end - 1;
    while ((static_cast<uint8_t>(*last) & 0xC0) == 0x80) --last;
    return last > p ? last : run_end;
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
  for (const Span& piece : pieces) {
    const Reader reader(text.substr(piece.begin, piece.end - piece.begin));
    uint32_t begin = piece.begin;
    for (const char* p = text.data() + begin; p < reader.end();) {
      p = piece_end(reader, p);
      const uint32_t end = static_cast<uint32_t>(p - text.data());
      out->push_back({begin, end});
      begin = end;
    }
  }
  return absl::OkStatus();
}

// Length of a contraction ('s 't 're 've 'm 'll 'd) at the apostrophe p, 0 if none.
size_t ContractionSize(const char* p, const char* end, bool any_case) {
  const auto letter = [&](int i) -> char {
    if (p + i >= end) return 0;
    const char c = p[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return letter(2) == 'e' ? 3 : 0;
    case 'l': return letter(2) == 'l' ? 3 : 0;
    // The long s, U+017F, is an s in any case.
    case '\xC5': return any_case && letter(2) == '\xBF' ? 3 : 0;
    default: return 0;
  }
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
    return reader.Spaces(p, reader.Run(p, CharClass::kSpace));
  }
};

// Llama 3 and Qwen differ only in the number of digits in a piece.
class Llama3Scanner final : public PieceSplitter {
 public:
  explicit Llama3Scanner(size_t max_digits) : max_digits_(max_digits) {}

  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    return Scan(text, pieces, out,
                [this](const Reader& reader, const char* p) { return PieceEnd(reader, p); });
  }

 private:
  static bool IsNewline(const char* p) { return *p == '\n' || *p == '\r'; }
  static const char* Newlines(const Reader& reader, const char* p) {
    while (p < reader.end() && IsNewline(p)) ++p;
    return p;
  }

  const char* PieceEnd(const Reader& reader, const char* p) const {
    if (*p == '\'') {
      if (const size_t size = ContractionSize(p, reader.end(), /*any_case=*/true)) return p + size;
    }
    const CharClass kind = reader.ClassAt(p);
    if (kind == CharClass::kLetter) return reader.Run(p, CharClass::kLetter);
    if (kind == CharClass::kNumber) return reader.Run(p, CharClass::kNumber, max_digits_);
    if (!IsNewline(p)) {
      const char* const next = reader.Next(p);
      if (reader.Is(next, CharClass::kLetter)) return reader.Run(next, CharClass::kLetter);
    }
    const char* const body = p + (*p == ' ');
    if (reader.Is(body, CharClass::kOther)) {
      return Newlines(reader, reader.Run(body, CharClass::kOther));
    }
    const char* const run_end = reader.Run(p, CharClass::kSpace);
    for (const char* last = run_end; last > p; --last) {
      if (IsNewline(last - 1)) return last;
    }
    return reader.Spaces(p, run_end);
  }

  const size_t max_digits_;
};

class DigitSplitter final : public PieceSplitter {
 public:
  explicit DigitSplitter(bool individual) : digit_limit_(individual ? 1 : SIZE_MAX) {}

  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    return Scan(text, pieces, out, [this](const Reader& reader, const char* p) {
      if (reader.ClassAt(p) == CharClass::kNumber) {
        return reader.Run(p, CharClass::kNumber, digit_limit_);
      }
      while (p < reader.end() && reader.ClassAt(p) != CharClass::kNumber) p = reader.Next(p);
      return p;
    });
  }

 private:
  const size_t digit_limit_;
};

}  // namespace

std::unique_ptr<const PieceSplitter> MakeScanner(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return std::make_unique<Gpt2Scanner>();
  if (pattern == kLlama3Pattern) return std::make_unique<Llama3Scanner>(3);
  if (pattern == kQwen2Pattern) return std::make_unique<Llama3Scanner>(1);
  return nullptr;
}

std::unique_ptr<const PieceSplitter> MakeDigitSplitter(bool individual) {
  return std::make_unique<DigitSplitter>(individual);
}

}  // namespace quire
