// Recursive descent over the notation. A definition ends with its line, unless the next line goes
// on with "|"; inside groups lines may break anywhere. Modifiers, priorities and aliases shape
// trees and choose between derivations, so they are read and dropped.
#include "engine/grammar/readers/lark_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/readers/text_cursor.h"
#include "engine/grammar/rules/grammar.h"

namespace quire {
namespace {

constexpr char32_t kEnd = TextCursor::kEnd;

bool IsLower(char32_t c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char32_t c) { return c >= 'A' && c <= 'Z'; }
bool IsNameChar(char32_t c) {
  return IsLower(c) || IsUpper(c) || (c >= '0' && c <= '9') || c == '_';
}

class LarkParser {
 public:
  LarkParser(std::string_view text, const GuideLimits& limits) : cursor_(text), limits_(limits) {}

  absl::StatusOr<LarkText> Parse() {
    for (SkipSpace(/*lines=*/true); cursor_.Peek() != kEnd; SkipSpace(/*lines=*/true)) {
      if (cursor_.TakeWord("%")) {
        Statement();
      } else {
        Definition();
      }
      SkipSpace(/*lines=*/false);
      const char32_t c = cursor_.Peek();
      if (c != '\n' && c != '\r' && c != kEnd) FailAtRest(c);
    }
    RETURN_IF_ERROR(cursor_.StatusByLine("lark"));
    return std::move(out_);
  }

 private:
  // Says what stands where an item or the end of the line is expected.
  void FailAtRest(char32_t c) {
    switch (c) {
      case '<': return cursor_.Fail("special tokens are not supported: write their text");
      case '{':
        return cursor_.Fail("templates and counts in braces are not supported; write ~n..m");
      case '%': return cursor_.Fail("statements within a rule, such as %json, are not supported");
      case '\'': return cursor_.Fail("literals are written with double quotes");
      case '&': return cursor_.Fail("intersections are not supported");
      case '-': return cursor_.Fail("an alias stands at the end of an alternative of a rule");
      case '?':
      case '*':
      case '+':
      case '~': return cursor_.Fail("a quantifier follows no item, or another quantifier");
      default: return cursor_.Fail("expected the end of the line");
    }
  }

  void SkipSpace(bool lines) {
    for (;;) {
      const char32_t c = cursor_.Peek();
      if (c == '#' || cursor_.TakeWord("//")) {
        while (cursor_.Peek() != '\n' && cursor_.Peek() != kEnd) cursor_.Take();
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        cursor_.Take();
      } else if (!cursor_.TakeWord("\\\n")) {
        return;
      }
    }
  }

  std::string Name() {
    const size_t begin = cursor_.offset();
    std::string name;
    while (IsNameChar(cursor_.Peek())) name.push_back(static_cast<char>(cursor_.Take()));
    const bool lower = std::any_of(name.begin(), name.end(), IsLower);
    const bool upper = std::any_of(name.begin(), name.end(), IsUpper);
    if (lower == upper) {
      cursor_.Return(begin);
      cursor_.Fail(name.empty() ? "expected a name"
                                : absl::StrCat("the name ", name,
                                               " is neither all lower case, as those of rules, nor "
                                               "all upper case, as those of terminals"));
    }
    return name;
  }

  void Definition() {
    while (cursor_.TakeWord("?") || cursor_.TakeWord("!")) continue;
    LarkDefinition definition{.name = {}, .at = cursor_.offset(), .body = {}};
    definition.name = Name();
    if (cursor_.Peek() == '{') cursor_.Fail("templates are not supported");
    if (cursor_.Peek() == '[') cursor_.Fail("attributes of a rule are not supported");
    if (cursor_.TakeWord(".")) {
      cursor_.TakeWord("-");
      if (!cursor_.TakeNumber()) cursor_.Fail("expected a priority");
    }
    SkipSpace(false);
    if (cursor_.TakeWord("::=")) cursor_.Fail("Lark writes \":\" after a name; this is GBNF");
    if (!cursor_.TakeWord(":")) cursor_.Fail("expected \":\"");
    definition.body = Alternatives(0);
    if (out_.definitions.size() >= limits_.max_rules) {
      cursor_.Fail(absl::StrCat("more than ", limits_.max_rules, " definitions"));
    }
    out_.definitions.push_back(std::move(definition));
  }

  void Statement() {
    const size_t begin = cursor_.offset() - 1;
    std::string word;
    while (IsNameChar(cursor_.Peek())) word.push_back(static_cast<char>(cursor_.Take()));
    SkipSpace(false);
    if (word == "ignore") {
      out_.ignored.push_back(Alternatives(0));
    } else if (word == "import") {
      Import();
    } else {
      cursor_.Return(begin);
      cursor_.Fail(absl::StrCat("%", word, " is not supported; %ignore and %import are"));
    }
  }

  // common.NAME, common.NAME -> ALIAS, or common (NAME, NAME).
  void Import() {
    if (!cursor_.TakeWord("common")) {
      cursor_.Fail("only terminals of the module common can be imported");
    }
    if (cursor_.TakeWord(".")) {
      LarkImport import = Imported();
      SkipSpace(false);
      if (cursor_.TakeWord("->")) {
        SkipSpace(false);
        import.alias = Name();
        if (!IsLarkTerminal(import.alias)) cursor_.Fail("a terminal's alias is a terminal");
      }
      out_.imports.push_back(std::move(import));
      return;
    }
    SkipSpace(false);
    if (!cursor_.TakeWord("(")) cursor_.Fail("expected \".\" or \"(\"");
    do {
      SkipSpace(true);
      out_.imports.push_back(Imported());
      SkipSpace(true);
    } while (cursor_.TakeWord(","));
    if (!cursor_.TakeWord(")")) cursor_.Fail("expected \")\"");
  }

  LarkImport Imported() {
    LarkImport import{.name = {}, .alias = {}, .at = cursor_.offset()};
    import.alias = import.name = Name();
    return import;
  }

  LarkExpr Alternatives(int depth) {
    LarkExpr choice{.kind = LarkExpr::Kind::kChoice, .at = cursor_.offset()};
    for (;;) {
      choice.parts.push_back(Sequence(depth));
      if (depth == 0) Alias();
      const size_t end = cursor_.offset();
      SkipSpace(true);
      if (cursor_.TakeWord("|")) continue;
      if (depth == 0) cursor_.Return(end);  // the line's end ends the definition
      return choice;
    }
  }

  void Alias() {
    SkipSpace(false);
    if (!cursor_.TakeWord("->")) return;
    SkipSpace(false);
    Name();
  }

  LarkExpr Sequence(int depth) {
    LarkExpr sequence{.kind = LarkExpr::Kind::kSequence, .at = cursor_.offset()};
    for (;;) {
      SkipSpace(depth > 0);
      const char32_t c = cursor_.Peek();
      if (c != '"' && c != '/' && c != '(' && c != '[' && !IsNameChar(c)) return sequence;
      sequence.parts.push_back(Quantified(Item(depth)));
    }
  }

  static LarkExpr Repeat(LarkExpr part, uint32_t min, uint32_t max) {
    LarkExpr repeat{.kind = LarkExpr::Kind::kRepeat, .at = part.at};
    repeat.min = min;
    repeat.max = max;
    repeat.parts.push_back(std::move(part));
    return repeat;
  }

  LarkExpr Quantified(LarkExpr item) {
    const size_t begin = cursor_.offset();
    SkipSpace(false);
    if (cursor_.TakeWord("?")) return Repeat(std::move(item), 0, 1);
    if (cursor_.TakeWord("*")) return Repeat(std::move(item), 0, Grammar::kUnbounded);
    if (cursor_.TakeWord("+")) return Repeat(std::move(item), 1, Grammar::kUnbounded);
    if (!cursor_.TakeWord("~")) {
      cursor_.Return(begin);
      return item;
    }
    const uint32_t min = Count();
    SkipSpace(false);
    const uint32_t max = cursor_.TakeWord("..") ? Count() : min;
    if (min > max) cursor_.Fail("the least count is above the largest");
    return Repeat(std::move(item), min, max);
  }

  uint32_t Count() {
    SkipSpace(false);
    const std::optional<uint32_t> count = cursor_.TakeNumber();
    if (!count) cursor_.Fail("expected a count");
    return count.value_or(0);
  }

  LarkExpr Item(int depth) {
    const char32_t c = cursor_.Peek();
    if (c == '"') return Literal();
    if (c == '/') return Regex();
    if (IsNameChar(c)) {
      LarkExpr name{.kind = LarkExpr::Kind::kName, .at = cursor_.offset()};
      name.text = Name();
      if (cursor_.Peek() == '{') cursor_.Fail("templates are not supported");
      return name;
    }
    if (depth >= limits_.max_depth) {
      cursor_.Fail(absl::StrCat("groups are nested deeper than ", limits_.max_depth));
      return {};
    }
    cursor_.Take();
    LarkExpr group = Alternatives(depth + 1);
    const bool optional = c == '[';
    if (!cursor_.TakeWord(optional ? "]" : ")")) FailInGroup(optional ? "]" : ")");
    return optional ? Repeat(std::move(group), 0, 1) : group;
  }

  void FailInGroup(const char* close) {
    const char32_t c = cursor_.Peek();
    if (c == kEnd || c == ']' || c == ')' || c == ':' || c == '}') {
      return cursor_.Fail(absl::StrCat("expected \"", close, "\""));
    }
    FailAtRest(c);
  }

  // "text", "text"i, or "a".."z".
  LarkExpr Literal() {
    LarkExpr literal{.kind = LarkExpr::Kind::kLiteral, .at = cursor_.offset()};
    literal.chars = Quoted();
    literal.ignore_case = cursor_.TakeWord("i");
    const size_t end = cursor_.offset();
    SkipSpace(false);
    if (!cursor_.TakeWord("..")) {
      cursor_.Return(end);
      return literal;
    }
    SkipSpace(false);
    if (cursor_.Peek() != '"') cursor_.Fail("expected the end of the range, a literal");
    literal.kind = LarkExpr::Kind::kRange;
    const std::u32string last = Quoted();
    if (literal.chars.size() != 1 || last.size() != 1 || literal.ignore_case) {
      cursor_.Fail("the ends of a range are literals of one character, without flags");
      return literal;
    }
    if (literal.chars > last) cursor_.Fail("a range whose end is before its beginning");
    literal.chars += last;
    return literal;
  }

  std::u32string Quoted() {
    std::u32string chars;
    cursor_.TakeWord("\"");
    while (cursor_.Peek() != '"' && cursor_.Peek() != '\n' && cursor_.Peek() != kEnd) {
      chars.push_back(Char());
    }
    if (!cursor_.TakeWord("\"")) cursor_.Fail("the literal has no end in its line");
    return chars;
  }

  char32_t Char() {
    if (!cursor_.TakeWord("\\")) return cursor_.Take();
    const char32_t c = cursor_.Take();
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'x': return Whole(cursor_.TakeHex(2));
      case 'u': return Whole(cursor_.TakeHex(4));
      case 'U': return Whole(cursor_.TakeHex(8));
      case '"':
      case '\\': return c;
      default: cursor_.Fail("this escape is not supported in a literal"); return c;
    }
  }

  char32_t Whole(char32_t c) {
    if (c >= 0xD800 && c <= 0xDFFF) cursor_.Fail("half of a surrogate pair");
    return c;
  }

  // /expression/flags; a slash within is escaped.
  LarkExpr Regex() {
    LarkExpr regex{.kind = LarkExpr::Kind::kRegex, .at = cursor_.offset()};
    cursor_.TakeWord("/");
    const size_t begin = cursor_.offset();
    while (cursor_.Peek() != '/' && cursor_.Peek() != '\n' && cursor_.Peek() != kEnd) {
      if (cursor_.Take() == '\\' && cursor_.Peek() != '\n') cursor_.Take();
    }
    regex.text = cursor_.From(begin);
    if (!cursor_.TakeWord("/")) cursor_.Fail("the regular expression has no end in its line");
    for (; IsLower(cursor_.Peek()); cursor_.Take()) {
      const char32_t flag = cursor_.Peek();
      if (flag != 'i' && flag != 's' && flag != 'u') {
        cursor_.Fail(absl::StrCat("the flag ", std::string(1, static_cast<char>(flag)),
                                  " is not supported; i, s and u are"));
      }
      regex.ignore_case |= flag == 'i';
      regex.dot_all |= flag == 's';
    }
    return regex;
  }

  TextCursor cursor_;
  const GuideLimits& limits_;
  LarkText out_;
};

}  // namespace

bool IsLarkTerminal(std::string_view name) {
  return std::any_of(name.begin(), name.end(), IsUpper);
}

absl::StatusOr<LarkText> ParseLark(std::string_view text, const GuideLimits& limits) {
  return LarkParser(text, limits).Parse();
}

}  // namespace quire
