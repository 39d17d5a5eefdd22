// Recursive descent over the expression. \d and \w are ASCII, as in ECMAScript; the dot is any code
// point that neither language takes for the end of a line.
#include "engine/grammar/readers/regex_reader.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/readers/text_cursor.h"

namespace quire {
namespace {

constexpr char32_t kEnd = TextCursor::kEnd;

const CodeSet& Digits() {
  static const CodeSet& set = *new CodeSet{{'0', '9'}};
  return set;
}
const CodeSet& WordChars() {
  static const CodeSet& set = *new CodeSet{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
const CodeSet& Spaces() {
  static const CodeSet& set = *new CodeSet{
      {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
const CodeSet& LineEnds() {
  static const CodeSet& set = *new CodeSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}

class RegexReader {
 public:
  RegexReader(std::string_view text, const RegexUse& use, Grammar* grammar)
      : cursor_(text), use_(use), grammar_(*grammar) {}

  absl::StatusOr<ExprId> Read() {
    const ExprId expr = Alternatives(0);
    if (cursor_.Peek() == ')') cursor_.Fail("\")\" closes no group");
    RETURN_IF_ERROR(cursor_.status(use_.what));
    return expr;
  }

 private:
  ExprId Write(const CodeSet& set) { return use_.write ? use_.write(set) : grammar_.Chars(set); }
  ExprId AnyText() {
    return grammar_.Repeat(Write(CodeSet().Complement()), 0, Grammar::kUnbounded);
  }

  ExprId Alternatives(int depth) {
    std::vector<ExprId> choices;
    do {
      choices.push_back(Alternative(depth));
    } while (cursor_.TakeWord("|"));
    return grammar_.Choice(std::move(choices));
  }

  ExprId Alternative(int depth) {
    std::vector<ExprId> parts;
    const bool open = use_.search && depth == 0;
    if (depth == 0 && use_.anchors && cursor_.TakeWord("^")) {
      while (cursor_.TakeWord("^")) continue;
    } else if (open) {
      parts.push_back(AnyText());
    }
    bool ended = false;
    while (!AtEnd()) {
      if (depth == 0 && use_.anchors && cursor_.TakeWord("$")) {
        if (!AtEnd()) cursor_.Fail("\"$\" is supported at the end of the expression only");
        ended = true;
        continue;
      }
      parts.push_back(Quantified(depth));
    }
    if (open && !ended) parts.push_back(AnyText());
    return grammar_.Sequence(std::move(parts));
  }

  bool AtEnd() const {
    const char32_t c = cursor_.Peek();
    return c == kEnd || c == '|' || c == ')';
  }

  ExprId Quantified(int depth) {
    const ExprId atom = Atom(depth);
    uint32_t min = 0, max = Grammar::kUnbounded;
    if (cursor_.TakeWord("?")) {
      max = 1;
    } else if (cursor_.TakeWord("+")) {
      min = 1;
    } else if (!cursor_.TakeWord("*")) {
      const auto bounds = Bounds();
      if (!bounds) return atom;
      std::tie(min, max) = *bounds;
    }
    cursor_.TakeWord("?");  // a lazy quantifier matches the same texts
    const char32_t next = cursor_.Peek();
    if (next == '*' || next == '+' || next == '?') {
      cursor_.Fail("a quantifier follows a quantifier");
    }
    return grammar_.Repeat(atom, min, max);
  }

  // "{2}", "{2,}" or "{2,3}"; other braces are plain characters.
  std::optional<std::pair<uint32_t, uint32_t>> Bounds() {
    const size_t begin = cursor_.offset();
    if (!cursor_.TakeWord("{")) return std::nullopt;
    const auto min = cursor_.TakeNumber();
    auto max = min;
    if (cursor_.TakeWord(",")) {
      max = cursor_.Peek() == '}' ? std::optional(Grammar::kUnbounded) : cursor_.TakeNumber();
      if (!min && max) cursor_.Fail("write {0,n} for {,n}");
    }
    if (!min || !max || !cursor_.TakeWord("}")) {
      cursor_.Return(begin);
      return std::nullopt;
    }
    if (*min > *max) cursor_.Fail("the least count is above the largest");
    return std::pair(*min, *max);
  }

  ExprId Atom(int depth) {
    const char32_t c = cursor_.Peek();
    if (c == '(') return Group(depth);
    if (c == '[') return Write(Class());
    if (c == '*' || c == '+' || c == '?') cursor_.Fail("nothing to repeat");
    if (c == '^' || c == '$') {
      cursor_.Fail(use_.anchors ? "\"^\" and \"$\" are supported at the ends of the expression only"
                                : "\"^\" and \"$\" are not supported here");
    }
    if (c == '\\') return Write(Folded(Escape(/*in_class=*/false)));
    cursor_.Take();
    if (c == '.') return Write((use_.dot_all ? CodeSet() : LineEnds()).Complement());
    return Write(Folded({{c, c}}));
  }

  ExprId Group(int depth) {
    cursor_.TakeWord("(");
    if (depth >= use_.max_depth) {
      cursor_.Fail(absl::StrCat("groups are nested deeper than ", use_.max_depth));
      return grammar_.Never();
    }
    if (cursor_.TakeWord("?")) GroupKind();
    const ExprId expr = Alternatives(depth + 1);
    if (!cursor_.TakeWord(")")) cursor_.Fail("expected \")\"");
    return expr;
  }

  void GroupKind() {
    if (cursor_.TakeWord(":")) return;
    const bool named = cursor_.TakeWord("P<") || cursor_.TakeWord("<");
    if (!named || cursor_.Peek() == '=' || cursor_.Peek() == '!') {
      cursor_.Fail("lookaround, flags and other extensions of groups are not supported");
    }
    while (named && cursor_.Peek() != '>' && cursor_.Peek() != kEnd) cursor_.Take();
    cursor_.TakeWord(">");
  }

  CodeSet Class() {
    cursor_.TakeWord("[");
    const bool negated = cursor_.TakeWord("^");
    if (cursor_.Peek() == ']') cursor_.Fail("an empty class; write \\] for the bracket");
    CodeSet set;
    while (cursor_.Peek() != ']' && cursor_.Peek() != kEnd) {
      const CodeSet first = ClassMember();
      const size_t begin = cursor_.offset();
      if (!cursor_.TakeWord("-") || cursor_.Peek() == ']') {
        cursor_.Return(begin);
        set.Add(Folded(first));
        continue;
      }
      const CodeSet last = ClassMember();
      if (!IsSingle(first) || !IsSingle(last)) {
        cursor_.Fail("a range between classes");
        break;
      }
      const CodeRange range = {first.ranges()[0].first, last.ranges()[0].first};
      if (range.first > range.last) cursor_.Fail("a range whose end is before its beginning");
      set.Add(Folded({range}));
    }
    if (!cursor_.TakeWord("]")) cursor_.Fail("expected \"]\"");
    return negated ? set.Complement() : set;
  }

  // With the other case of each letter. Sets of several ranges are those of escapes like \w, which
  // have both cases of any letter.
  CodeSet Folded(CodeSet set) {
    if (!use_.ignore_case || set.ranges().size() != 1) return set;
    if (set.ranges()[0].last >= 0x80) cursor_.Fail("the flag i is supported for ASCII only");
    for (char32_t lower = 'a'; lower <= 'z'; ++lower) {
      const char32_t upper = lower - 'a' + 'A';
      if (!set.Contains(lower) && !set.Contains(upper)) continue;
      set.Add({lower, lower});
      set.Add({upper, upper});
    }
    return set;
  }

  static bool IsSingle(const CodeSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  CodeSet ClassMember() {
    if (cursor_.Peek() == '\\') return Escape(/*in_class=*/true);
    const char32_t c = cursor_.Take();
    if (c == kEnd) return {};
    return {{c, c}};
  }

  CodeSet Escape(bool in_class) {
    cursor_.TakeWord("\\");
    const char32_t c = cursor_.Take();
    switch (c) {
      case 'd': return Digits();
      case 'D': return Digits().Complement();
      case 'w': return WordChars();
      case 'W': return WordChars().Complement();
      case 's': return Spaces();
      case 'S': return Spaces().Complement();
      case 'n': return {{'\n', '\n'}};
      case 'r': return {{'\r', '\r'}};
      case 't': return {{'\t', '\t'}};
      case 'f': return {{'\f', '\f'}};
      case 'v': return {{'\v', '\v'}};
      case 'x': return Single(cursor_.TakeHex(2));
      case 'u': return Single(UnicodeEscape());
      case 'b':
        if (in_class) return {{'\b', '\b'}};
        break;
      case '0':
        if (cursor_.Peek() < '0' || cursor_.Peek() > '9') return {{0, 0}};
        break;
      case kEnd: cursor_.Fail("nothing after \"\\\""); return {};
      default: break;
    }
    if (c < 0x80 && !WordChars().Contains(c)) return {{c, c}};
    cursor_.Fail("this escape is not supported");
    return {};
  }

  CodeSet Single(char32_t c) {
    if (c >= 0xD800 && c <= 0xDFFF) cursor_.Fail("half of a surrogate pair");
    return {{c, c}};
  }

  // After "\u": four digits, a surrogate pair of them, or digits in braces.
  char32_t UnicodeEscape() {
    if (cursor_.TakeWord("{")) {
      int digits = 0;
      const size_t begin = cursor_.offset();
      for (; cursor_.Peek() != '}' && digits < 7; ++digits) cursor_.Take();
      cursor_.Return(begin);
      const char32_t c = cursor_.TakeHex(digits);
      if (digits == 0 || !cursor_.TakeWord("}")) cursor_.Fail("expected \\u{1 to 6 digits}");
      return c;
    }
    const char32_t high = cursor_.TakeHex(4);
    if (high < 0xD800 || high > 0xDBFF || !cursor_.TakeWord("\\u")) return high;
    const char32_t low = cursor_.TakeHex(4);
    if (low < 0xDC00 || low > 0xDFFF) return high;
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  TextCursor cursor_;
  const RegexUse& use_;
  Grammar& grammar_;
};

}  // namespace

absl::StatusOr<ExprId> ReadRegex(std::string_view text, const RegexUse& use, Grammar* grammar) {
  return RegexReader(text, use, grammar).Read();
}

}  // namespace quire
