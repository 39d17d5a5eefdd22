// Literals, sets of characters, and words.
#include "server/text/pattern/pattern.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "server/text/pattern/regex_pattern.h"
#include "server/text/unicode/char_sets.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

Span SpanOf(size_t begin, size_t end) {
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

class LiteralPattern final : public Pattern {
 public:
  explicit LiteralPattern(std::string text) : text_(std::move(text)) {}
  absl::Status FindAll(std::string_view text, std::vector<Span>* matches) const override {
    for (size_t at = text.find(text_); at != text.npos; at = text.find(text_, at + text_.size())) {
      matches->push_back(SpanOf(at, at + text_.size()));
    }
    return absl::OkStatus();
  }

 private:
  const std::string text_;
};

bool Belongs(CharSet set, char32_t c) {
  switch (set) {
    case CharSet::kNumber: return ClassOf(CharClasses(), c) == CharClass::kNumber;
    case CharSet::kSpace: return ClassOf(CharClasses(), c) == CharClass::kSpace;
    case CharSet::kPunctuation: return IsPunctuation(c);
  }
  return false;
}

class CharPattern final : public Pattern {
 public:
  explicit CharPattern(CharSet set) : set_(set) {}
  absl::Status FindAll(std::string_view text, std::vector<Span>* matches) const override {
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = DecodeUtf8(text.data() + at);
      if (Belongs(set_, c.value)) matches->push_back(SpanOf(at, at + c.size));
      at += c.size;
    }
    return absl::OkStatus();
  }

 private:
  const CharSet set_;
};

class WordPattern final : public Pattern {
 public:
  absl::Status FindAll(std::string_view text, std::vector<Span>* matches) const override {
    Kind last = Kind::kSpace;
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = DecodeUtf8(text.data() + at);
      const Kind kind = KindOf(c.value);
      if (kind != Kind::kSpace) {
        if (kind != last) matches->push_back(SpanOf(at, at));
        matches->back().end = static_cast<uint32_t>(at + c.size);
      }
      last = kind;
      at += c.size;
    }
    return absl::OkStatus();
  }

 private:
  enum class Kind { kSpace, kWord, kOther };
  static Kind KindOf(char32_t c) {
    if (IsWordChar(c)) return Kind::kWord;
    return ClassOf(CharClasses(), c) == CharClass::kSpace ? Kind::kSpace : Kind::kOther;
  }
};

}  // namespace

std::unique_ptr<const Pattern> MakeLiteralPattern(std::string text) {
  return std::make_unique<LiteralPattern>(std::move(text));
}

std::unique_ptr<const Pattern> MakeCharPattern(CharSet set) {
  return std::make_unique<CharPattern>(set);
}

std::unique_ptr<const Pattern> MakeWordPattern() { return std::make_unique<WordPattern>(); }

absl::StatusOr<std::unique_ptr<const Pattern>> ReadPattern(const JsonNode& node) {
  if (!node.Has("pattern")) return Refuse(node, "'pattern' is missing");
  const JsonNode pattern = node.At("pattern");
  RETURN_IF_ERROR(CheckKeys(pattern, {"String", "Regex"}));
  if (pattern.value.size() != 1) return Refuse(pattern, "is not one of String and Regex");
  if (pattern.Has("String")) {
    ASSIGN_OR_RETURN(std::string text, ReadString(pattern, "String"));
    if (text.empty()) return Refuse(pattern.At("String"), "is empty");
    return MakeLiteralPattern(std::move(text));
  }
  ASSIGN_OR_RETURN(const std::string regex, ReadString(pattern, "Regex"));
  auto made = MakeRegexPattern(regex);
  if (!made.ok()) return Refuse(pattern.At("Regex"), std::string(made.status().message()));
  return made;
}

}  // namespace quire
