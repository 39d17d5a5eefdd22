// Two levels: text up to a tag, then the tokens in the tag.
#include "server/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include <utf8proc.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsOctal(char c) { return c >= '0' && c <= '7'; }

// Bytes of the white space at `at`, of Unicode's as in Python; 0 if there is none.
size_t SpaceAt(std::string_view text, size_t at) {
  if (at >= text.size()) return 0;
  const CodePoint c = DecodeUtf8(text.data() + at);
  return IsPythonSpace(c.value) ? static_cast<size_t>(c.size) : 0;
}

// Bytes of the character at `at` if it may be in a name, as Python has it, or begin one; else 0.
size_t NameCharAt(std::string_view text, size_t at, bool begins) {
  if (at >= text.size()) return 0;
  const CodePoint c = DecodeUtf8(text.data() + at);
  const auto size = static_cast<size_t>(c.size);
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c.value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL: return size;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND: return begins ? 0 : size;
    case UTF8PROC_CATEGORY_PC: return begins && c.value != '_' ? 0 : size;
    default: return 0;
  }
}

// An integer in hexadecimal, octal or binary notation; npos as the end if there are no digits.
struct PrefixedInteger {
  size_t end;
  std::string decimal;
};
PrefixedInteger ReadPrefixed(std::string_view text, size_t begin) {
  const char letter = begin + 1 < text.size() ? static_cast<char>(text[begin + 1] | 0x20) : '\0';
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (text[begin] != '0' || base == 0) return {text.npos, ""};
  size_t end = begin + 2;
  std::string digits;
  for (; end < text.size() && (absl::ascii_isalnum(text[end]) || text[end] == '_'); ++end) {
    if (text[end] != '_') digits += text[end];
  }
  int64_t value = 0;
  const char* const last = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), last, value, base);
  if (digits.empty() || read.ptr != last) return {text.npos, ""};
  // One that does not fit becomes a number that the parser refuses.
  return {end, read.ec == std::errc() ? absl::StrCat(value) : std::string(20, '9')};
}

// Line ends become \n, and the one at the very end is not part of the template.
std::string NormalizeLines(const std::string& source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(NormalizeLines(source)), in_(source_) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < in_.size()) {
      const size_t tag = FindTag();
      if (tag == std::string_view::npos) {
        AddText(in_.substr(at_));
        at_ = in_.size();
        break;
      }
      RETURN_IF_ERROR(ReadTag(tag));
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Fault(const std::string& reason) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line_, ", column ", ColumnOf(at_), ": ", reason));
  }
  int ColumnOf(size_t at) const {
    return at < line_begin_ ? 1 : static_cast<int>(at - line_begin_ + 1);
  }
  bool Follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  // Advances and counts lines.
  void Skip(size_t count) {
    const std::string_view skipped = in_.substr(at_, count);
    line_ += static_cast<int>(std::count(skipped.begin(), skipped.end(), '\n'));
    if (const size_t last = skipped.rfind('\n'); last != skipped.npos) line_begin_ = at_ + last + 1;
    at_ += count;
  }
  void SkipSpace() {
    while (const size_t space = SpaceAt(in_, at_)) Skip(space);
  }
  void Add(Token::Kind kind, std::string text) { AddFrom(at_, kind, std::move(text)); }
  // Of a token that began at `begin` in this line.
  void AddFrom(size_t begin, Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_, ColumnOf(begin)});
  }
  void AddText(std::string_view text) {
    if (!text.empty()) Add(Token::Kind::kText, std::string(text));
  }

  size_t FindTag() const {
    for (size_t i = in_.find('{', at_); i != std::string_view::npos; i = in_.find('{', i + 1)) {
      if (i + 1 < in_.size() && (in_[i + 1] == '{' || in_[i + 1] == '%' || in_[i + 1] == '#')) {
        return i;
      }
    }
    return std::string_view::npos;
  }

  // Adds the text before the tag at `tag`, without the white space that the tag removes.
  void AddTextBefore(size_t tag, char kind, char sign) {
    std::string_view text = in_.substr(at_, tag - at_);
    if (sign == '-') {
      text = Strip(text, Side::kRight);
    } else if (sign != '+' && kind != '{') {
      const size_t line_begin = text.rfind('\n') + 1;  // 0 without a line end
      if ((line_begin > 0 || at_line_start_) &&
          Strip(text.substr(line_begin), Side::kBoth).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    AddText(text);
    Skip(tag - at_);
  }

  absl::Status ReadTag(size_t tag) {
    const char kind = in_[tag + 1];
    const char sign = tag + 2 < in_.size() ? in_[tag + 2] : '\0';
    AddTextBefore(tag, kind, sign);
    const bool has_sign = sign == '-' || sign == '+';  // also in {{-1}}
    Skip(has_sign ? 3 : 2);
    if (kind == '#') return SkipComment();
    if (kind == '%' && IsRaw()) return ReadRaw();
    Add(kind == '{' ? Token::Kind::kOutputBegin : Token::Kind::kBlockBegin, "");
    RETURN_IF_ERROR(ReadInside(kind == '{' ? "}}" : "%}"));
    Add(kind == '{' ? Token::Kind::kOutputEnd : Token::Kind::kBlockEnd, "");
    return absl::OkStatus();
  }

  // At the end of a tag: reads its sign, the two characters, and the white space that it removes.
  bool SkipTagEnd(std::string_view end) {
    const bool strips = Follows("-") && in_.substr(at_ + 1).starts_with(end);
    const bool keeps = end != "}}" && Follows("+") && in_.substr(at_ + 1).starts_with(end);
    if (!strips && !keeps && !Follows(end)) return false;
    Skip(end.size() + (strips || keeps));
    const size_t begin = at_;
    if (strips) {
      SkipSpace();
    } else if (!keeps && end != "}}" && Follows("\n")) {
      Skip(1);
    }
    at_line_start_ = at_ > begin && in_[at_ - 1] == '\n';
    return true;
  }

  absl::Status SkipComment() {
    while (at_ < in_.size()) {
      if (SkipTagEnd("#}")) return absl::OkStatus();
      Skip(1);
    }
    return Fault("comment without an end");
  }

  bool IsRaw() const {
    size_t i = at_;
    while (const size_t space = SpaceAt(in_, i)) i += space;
    return in_.substr(i).starts_with("raw") && NameCharAt(in_, i + 3, /*begins=*/false) == 0;
  }

  absl::Status ReadRaw() {
    while (!Follows("raw")) Skip(1);
    Skip(3);
    SkipSpace();
    // The line end after the opening tag stays, unlike after any other block.
    if (Follows("-%}")) {
      SkipTagEnd("%}");
    } else if (Follows("%}")) {
      Skip(2);
      at_line_start_ = false;
    } else {
      return Fault("raw without an end of its tag");
    }
    for (size_t tag = in_.find("{%", at_); tag != in_.npos; tag = in_.find("{%", tag + 1)) {
      size_t i = tag + 2;
      const char sign = i < in_.size() ? in_[i] : '\0';
      if (sign == '-' || sign == '+') ++i;
      while (const size_t space = SpaceAt(in_, i)) i += space;
      if (!in_.substr(i).starts_with("endraw")) continue;
      AddTextBefore(tag, '%', sign);
      Skip(i + 6 - at_);
      SkipSpace();
      return SkipTagEnd("%}") ? absl::OkStatus() : Fault("endraw without an end of its tag");
    }
    return Fault("raw without endraw");
  }

  absl::Status ReadInside(std::string_view end) {
    std::string open;  // brackets; inside them the characters of a tag's end do not end it
    while (at_ < in_.size()) {
      if (SpaceAt(in_, at_) > 0) {
        SkipSpace();
      } else if (open.empty() && SkipTagEnd(end)) {
        return absl::OkStatus();
      } else if (NameCharAt(in_, at_, /*begins=*/true) > 0) {
        const size_t begin = at_;
        while (const size_t size = NameCharAt(in_, at_, /*begins=*/false)) at_ += size;
        AddFrom(begin, Token::Kind::kName, std::string(in_.substr(begin, at_ - begin)));
      } else if (IsDigit(in_[at_])) {
        ReadNumber();
      } else if (in_[at_] == '"' || in_[at_] == '\'') {
        RETURN_IF_ERROR(ReadString());
      } else {
        RETURN_IF_ERROR(ReadOperator(&open));
      }
    }
    return Fault("tag without an end");
  }

  void ReadNumber() {
    const size_t begin = at_;
    if (const PrefixedInteger prefixed = ReadPrefixed(in_, at_); prefixed.end != in_.npos) {
      at_ = prefixed.end;
      return AddFrom(begin, Token::Kind::kInteger, prefixed.decimal);
    }
    const bool index = begin > 0 && in_[begin - 1] == '.';  // x.0.1 has two of them
    const auto digits = [this] {
      while (at_ < in_.size() && (IsDigit(in_[at_]) || in_[at_] == '_')) ++at_;
    };
    digits();
    bool is_float = false;
    if (!index && Follows(".") && at_ + 1 < in_.size() && IsDigit(in_[at_ + 1])) {
      is_float = true;
      ++at_;
      digits();
    }
    if (!index && (Follows("e") || Follows("E"))) {
      const size_t sign = at_ + 1 < in_.size() && (in_[at_ + 1] == '+' || in_[at_ + 1] == '-');
      if (at_ + 1 + sign < in_.size() && IsDigit(in_[at_ + 1 + sign])) {
        is_float = true;
        at_ += 1 + sign;
        digits();
      }
    }
    std::string text(in_.substr(begin, at_ - begin));
    std::erase(text, '_');
    AddFrom(begin, is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(text));
  }

  absl::Status ReadString() {
    const char quote = in_[at_];
    const int line = line_, column = ColumnOf(at_);
    std::string value;
    Skip(1);
    while (at_ < in_.size() && in_[at_] != quote) {
      if (in_[at_] == '\\') {
        RETURN_IF_ERROR(ReadEscape(&value));
      } else {
        value += in_[at_];
        Skip(1);
      }
    }
    if (at_ >= in_.size()) return Fault("string without an end");
    Skip(1);
    tokens_.push_back({Token::Kind::kString, std::move(value), line, column});
    return absl::OkStatus();
  }

  // Python's escapes; a backslash before anything else stays.
  absl::Status ReadEscape(std::string* value) {
    if (at_ + 1 >= in_.size()) return Fault("string without an end");
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
    const char c = in_[at_ + 1];
    if (const size_t known = kNames.find(c); known != kNames.npos || c == '\n') {
      if (c != '\n') *value += kValues[known];  // an escaped line end adds no character
      Skip(2);
      return absl::OkStatus();
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      if (IsOctal(c)) return ReadOctal(value);
      *value += {'\\', c};
      Skip(2);
      return absl::OkStatus();
    }
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char h = at_ + 2 + i < in_.size() ? in_[at_ + 2 + i] : '\0';
      const int nibble = IsDigit(h)             ? h - '0'
                         : h >= 'a' && h <= 'f' ? h - 'a' + 10
                         : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                                : -1;
      if (nibble < 0) return Fault("escape without its digits");
      code = code << 4 | static_cast<char32_t>(nibble);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return Fault("escape of no code point");
    AppendUtf8(code, value);
    Skip(2 + digits);
    return absl::OkStatus();
  }

  // Up to three digits, as in Python.
  absl::Status ReadOctal(std::string* value) {
    char32_t code = 0;
    Skip(1);
    for (int i = 0; i < 3 && at_ < in_.size() && IsOctal(in_[at_]); ++i) {
      code = code * 8 + static_cast<char32_t>(in_[at_] - '0');
      Skip(1);
    }
    AppendUtf8(code, value);
    return absl::OkStatus();
  }

  absl::Status ReadOperator(std::string* open) {
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    for (std::string_view op : kDouble) {
      if (!Follows(op)) continue;
      Add(Token::Kind::kOperator, std::string(op));
      Skip(2);
      return absl::OkStatus();
    }
    const char c = in_[at_];
    if (std::string_view("+-*/%~<>=.:|,()[]{}").find(c) == std::string_view::npos) {
      const absl::string_view character(&in_[at_], CodePointEnd(in_, at_) - at_);
      return Fault(absl::StrCat("character '", character, "' is not expected"));
    }
    if (c == '(' || c == '[' || c == '{') open->push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char opener = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open->empty() || open->back() != opener) return Fault("brackets do not match");
      open->pop_back();
    }
    Add(Token::Kind::kOperator, std::string(1, c));
    Skip(1);
    return absl::OkStatus();
  }

  const std::string source_;
  const std::string_view in_;
  size_t at_ = 0;
  int line_ = 1;
  size_t line_begin_ = 0;
  bool at_line_start_ = true;  // at_ is at the start or after a line end
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(const std::string& source) {
  if (FindInvalidUtf8(source) != std::string::npos) {
    return absl::InvalidArgumentError("the template is not valid UTF-8");
  }
  return Lexer(source).Run();
}

}  // namespace quire::jinja
