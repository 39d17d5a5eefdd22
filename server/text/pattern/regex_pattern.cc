// Patterns without a scanner: translated from the dialect of the `tokenizers` package (Oniguruma,
// Ruby syntax, Unicode 16.0) to PCRE2 with Unicode 14.0. Refuses constructs that the
// two read differently.
#include "server/text/pattern/regex_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "server/text/pattern/text_budget.h"
#include "server/text/unicode/char_set_tables.h"
#include "server/text/unicode/unicode.h"
#include "server/text/unicode/unicode_tables.h"

namespace quire {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
// Of the interpreter, which takes over where compiled code runs out of its stack.
constexpr uint32_t kHeapLimitKiB = 64 << 10;
// An item repeats so often without a count of its steps.
constexpr int kMaxCount = 256;

constexpr char kSpaces[] =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kCategories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P", "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
constexpr std::string_view kScripts[] = {
    "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Georgian",
    "Greek",  "Han",      "Hangul",  "Hebrew",   "Hiragana",   "Katakana",
    "Khmer",  "Lao",      "Latin",   "Tamil",    "Thai",       "Tibetan"};

// Rewrites one pattern; stops at the first unknown construct.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Translate() {
    while (at_ < in_.size()) RETURN_IF_ERROR(TranslateNext());
    if (in_class_) return Refuse(at_, "class without an end");
    return std::move(out_);
  }

 private:
  absl::Status Refuse(size_t at, const std::string& construct) const {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern is not supported: ", construct, " at byte ", at));
  }
  bool Follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void Copy(size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }
  // Appends a set: as members within a class, else as a class of its own.
  void AddSet(const std::string& members, bool negated) {
    out_ += in_class_ ? members : absl::StrCat(negated ? "[^" : "[", members, "]");
  }

  absl::Status TranslateNext() {
    if (in_[at_] == '\\') return TranslateEscape();
    if (in_class_) return TranslateInClass();
    switch (in_[at_]) {
      case '[': return OpenClass();
      case '(': return OpenGroup();
      case ')':
        any_case_depth_ = std::max(any_case_depth_ - 1, 0);
        Copy(1);
        return absl::OkStatus();
      // Lines, also without the option of PCRE2; a newline at the end begins no line.
      case '^': return Replace("(?:\\A|(?<=\\n)(?!\\z))");
      case '$': return Replace("(?=\\n|\\z)");
      case '{': return TranslateCount();
      default: return CopyLiteral();
    }
  }

  // Puts `text` in the place of one byte.
  absl::Status Replace(std::string_view text) {
    if (any_case_depth_ > 0) return CopyLiteral();
    out_ += text;
    ++at_;
    // Of an empty match, the engines disagree on counts.
    const bool counted = at_ < in_.size() && std::string_view("*+?{").find(in_[at_]) != in_.npos;
    return counted ? Refuse(at_, "count of ^ or $") : absl::OkStatus();
  }

  // Only one engine folds several letters at once (ss and the sharp s, st and its ligature);
  // contractions never have those letters in a row.
  absl::Status CopyLiteral() {
    if (any_case_depth_ > 0 &&
        std::string_view("'sdmtlverSDMTLVER|?").find(in_[at_]) == std::string_view::npos) {
      return Refuse(at_, "text other than contractions without regard to case");
    }
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status OpenGroup() {
    static constexpr std::string_view kGroups[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (Follows("(?i:")) {
      any_case_depth_ = 1;
      Copy(4);
      return absl::OkStatus();
    }
    if (any_case_depth_ > 0) ++any_case_depth_;
    for (std::string_view group : kGroups) {
      if (Follows(group)) {
        Copy(group.size());
        return absl::OkStatus();
      }
    }
    if (Follows("(?") || Follows("(*")) return Refuse(at_, std::string(in_.substr(at_, 3)));
    out_ += "(?:";
    ++at_;
    return absl::OkStatus();
  }

  absl::Status OpenClass() {
    in_class_ = true;
    Copy(1);
    if (Follows("^")) Copy(1);
    if (Follows("]")) return Refuse(at_, "] first in a class");
    return absl::OkStatus();
  }

  absl::Status TranslateInClass() {
    if (Follows("[")) return Refuse(at_, "[ in a class");
    if (Follows("&&")) return Refuse(at_, "&& in a class");
    if (in_[at_] == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  // {n}, {n,} and {n,m}, not followed by ? or +, which Ruby reads as another quantifier.
  absl::Status TranslateCount() {
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) return Refuse(at_, "{ without }");
    const std::string_view body = in_.substr(at_ + 1, close - at_ - 1);
    const bool digits = !body.empty() && isdigit(body[0]) &&
                        body.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!digits) return Refuse(at_, "{ that is not a count");
    for (const absl::string_view count :
         absl::StrSplit(absl::string_view(body.data(), body.size()), ',')) {
      int value = 0;
      if (!count.empty() && (!absl::SimpleAtoi(count, &value) || value > kMaxCount)) {
        return Refuse(at_, absl::StrCat("count above ", kMaxCount));
      }
    }
    Copy(close + 1 - at_);
    if (Follows("?") || Follows("+")) return Refuse(at_, "? or + after a count");
    return absl::OkStatus();
  }

  absl::Status TranslateEscape() {
    if (at_ + 1 >= in_.size()) return Refuse(at_, "\\ at the end");
    const char c = in_[at_ + 1];
    switch (c) {
      case 'p':
      case 'P': return TranslateProperty(c == 'P');
      case 's':
      case 'S':
        at_ += 2;
        if (c == 'S' && in_class_) return Refuse(at_ - 2, "\\S in a class");
        AddSet(kSpaces, c == 'S');
        return absl::OkStatus();
      case 'd':
        at_ += 2;
        AddSet(CategoryMembers("Nd"), false);
        return absl::OkStatus();
      case 'w':
      case 'W':
        at_ += 2;
        if (c == 'W' && in_class_) return Refuse(at_ - 2, "\\W in a class");
        AddSet(WordMembers(), c == 'W');
        return absl::OkStatus();
      case 'v':  // the vertical tab alone
        at_ += 2;
        out_ += "\\x0B";
        return absl::OkStatus();
      case 'u': return TranslateUnicodeEscape();
      case 'x': return CopyHexEscape();
      case 'r':
      case 'n':
      case 't':
      case 'f': Copy(2); return absl::OkStatus();
      default:
        if (static_cast<uint8_t>(c) < 0x80 && ispunct(c)) {
          Copy(2);
          return absl::OkStatus();
        }
        return Refuse(at_, std::string("\\") + c);
    }
  }

  absl::Status TranslateUnicodeEscape() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), isxdigit)) {
      return Refuse(at_, "\\u without four digits");
    }
    absl::StrAppend(&out_, "\\x{", absl::string_view(digits.data(), digits.size()), "}");
    at_ += 6;
    return absl::OkStatus();
  }

  absl::Status CopyHexEscape() {
    const bool braces = in_.substr(at_ + 2).starts_with("{");
    const size_t close = braces ? in_.find('}', at_) : at_ + 3;
    if (close == std::string_view::npos || close >= in_.size()) {
      return Refuse(at_, "\\x without its digits");
    }
    Copy(close + 1 - at_);
    return absl::OkStatus();
  }

  absl::Status TranslateProperty(bool negated) {
    const size_t begin = at_;
    const size_t close = in_.find('}', at_);
    if (!in_.substr(at_ + 2).starts_with("{") || close == std::string_view::npos) {
      return Refuse(begin, "\\p without braces");
    }
    const std::string name(in_.substr(at_ + 3, close - at_ - 3));
    at_ = close + 1;
    if (negated && in_class_) return Refuse(begin, absl::StrCat("\\P{", name, "} in a class"));
    if (std::ranges::find(kCategories, name) != std::end(kCategories)) {
      AddSet(CategoryMembers(name), negated);
    } else if (std::ranges::find(kScripts, name) != std::end(kScripts)) {
      AddSet(absl::StrCat("\\p{sc:", name, "}"), negated);
    } else {
      return Refuse(begin, absl::StrCat("\\p{", name, "}"));
    }
    return absl::OkStatus();
  }

  // The library's members, and those assigned since its version of Unicode.
  static std::string CategoryMembers(const std::string& name) {
    std::string members = absl::StrCat("\\p{", name, "}");
    for (size_t i = 0; i < kSinceUnicode14Size; ++i) {
      const CategoryRange& added = kSinceUnicode14[i];
      if (!std::string_view(added.category).starts_with(name)) continue;
      absl::StrAppendFormat(&members, "\\x{%X}-\\x{%X}", static_cast<uint32_t>(added.first),
                            static_cast<uint32_t>(added.last));
    }
    return members;
  }

  // The word characters of Whitespace without the joiners, and the superscripts and fractions of
  // Latin-1, which Oniguruma counts among them.
  static std::string WordMembers() {
    std::string members = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
    for (size_t i = 0; i < kWordRangesSize; ++i) {
      const CodeRange& range = kWordRanges[i];
      if (range.first == 0x200C && range.last == 0x200D) continue;
      absl::StrAppendFormat(&members, "\\x{%X}-\\x{%X}", static_cast<uint32_t>(range.first),
                            static_cast<uint32_t>(range.last));
    }
    return members;
  }

  const std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  bool in_class_ = false;
  int any_case_depth_ = 0;  // groups open since (?i:
};

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

// The steps of the matches in one text. The library calls OnItem before each item of the pattern,
// so a step is an item that is tried or a byte that the item before it has matched; the library's
// own match limit starts again at every byte, and does not count the bytes of a repeated item.
class StepCount {
 public:
  explicit StepCount(TextBudget* budget) : budget_(*budget) {}

  void BeginMatch(size_t at) { at_ = at; }
  static int OnItem(pcre2_callout_block* block, void* count) {
    return static_cast<StepCount*>(count)->Add(block->current_position);
  }
  const absl::Status& status() const { return budget_.status(); }

 private:
  int Add(size_t at) {
    const size_t matched = at > at_ ? at - at_ : 0;
    at_ = at;
    return budget_.Take(1 + static_cast<int64_t>(matched)) ? 0 : PCRE2_ERROR_CALLOUT;
  }

  TextBudget& budget_;
  size_t at_ = 0;  // of the last item
};

// The memory with which a thread matches.
class Matcher {
 public:
  static Matcher& OfThread() {
    static thread_local Matcher matcher;
    return matcher;
  }

  // As pcre2_match.
  int Match(const pcre2_code* code, std::string_view text, size_t at, StepCount* steps) {
    pcre2_set_callout(context_.get(), StepCount::OnItem, steps);
    const int found = Match(code, text, at, steps, PCRE2_NO_UTF_CHECK);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    // Long backtracking exceeds the stack of compiled code; the interpreter's stack is on the heap.
    return Match(code, text, at, steps, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  }
  Span match() const {
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(match_.get());
    return {static_cast<uint32_t>(range[0]), static_cast<uint32_t>(range[1])};
  }

 private:
  Matcher() {
    pcre2_set_heap_limit(context_.get(), kHeapLimitKiB);
    // The steps are the limit.
    pcre2_set_match_limit(context_.get(), std::numeric_limits<uint32_t>::max());
  }
  int Match(const pcre2_code* code, std::string_view text, size_t at, StepCount* steps,
            uint32_t options) {
    steps->BeginMatch(at);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, options,
                       match_.get(), context_.get());
  }

  // Only the ends of the whole match are wanted, so one pair serves every pattern.
  const std::unique_ptr<pcre2_match_data, FreeMatchData> match_{
      pcre2_match_data_create(1, nullptr)};
  const std::unique_ptr<pcre2_match_context, FreeMatchContext> context_{
      pcre2_match_context_create(nullptr)};
};

class RegexPattern final : public Pattern {
 public:
  explicit RegexPattern(std::unique_ptr<pcre2_code, FreeCode> code) : code_(std::move(code)) {}

  absl::Status FindAll(std::string_view text, std::vector<Span>* matches) const override {
    if (TextBudget* const budget = TextBudget::OfThread()) return FindAll(text, budget, matches);
    TextBudget own(text.size());
    return FindAll(text, &own, matches);
  }

 private:
  absl::Status FindAll(std::string_view text, TextBudget* budget,
                       std::vector<Span>* matches) const {
    StepCount steps(budget);
    Matcher& matcher = Matcher::OfThread();
    size_t at = 0;
    while (at < text.size()) {
      const int found = matcher.Match(code_.get(), text, at, &steps);
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) return GaveUp(found, at, steps.status());
      matches->push_back(matcher.match());
      at = matches->back().end;
    }
    return absl::OkStatus();
  }

  // `stopped`: the reason if a step was refused.
  static absl::Status GaveUp(int error, size_t at, const absl::Status& stopped) {
    if (!stopped.ok() && !absl::IsResourceExhausted(stopped)) return stopped;
    PCRE2_UCHAR reason[128] = {};
    pcre2_get_error_message(error, reason, sizeof reason);
    return absl::ResourceExhaustedError(
        absl::StrCat("the tokenizer's pattern gave up at byte ", at, " of the text: ",
                     stopped.ok() ? absl::string_view(reinterpret_cast<const char*>(reason))
                                  : stopped.message()));
  }

  const std::unique_ptr<pcre2_code, FreeCode> code_;
};

// The distinct code points of the pattern itself, and some of each kind.
std::vector<std::string> ProbeCharacters(std::string_view pattern) {
  constexpr size_t kMostOfPattern = 64;
  std::vector<std::string> characters = {"a", "A", "0", " ", "\t", "\n", "!", "\u00e9", "\u4e16"};
  const size_t most = characters.size() + kMostOfPattern;
  for (size_t at = 0; at < pattern.size() && characters.size() < most;) {
    std::string character(pattern.substr(at, DecodeUtf8(pattern.data() + at).size));
    at += character.size();
    if (std::ranges::count(characters, character) == 0) characters.push_back(std::move(character));
  }
  return characters;
}

// Refuses a pattern that takes very long for a short text: a run of one character, an end that no
// pattern expects, and the pattern's characters, without one of which the library would not begin.
absl::Status ProbeRuns(std::string_view source, const Pattern& pattern) {
  constexpr int kRun = 96;
  std::vector<Span> matches;
  const std::vector<std::string> characters = ProbeCharacters(source);
  const std::string end = "\x01" + absl::StrJoin(characters, "");
  for (const std::string& character : characters) {
    std::string text;
    for (int i = 0; i < kRun; ++i) text += character;
    text += end;
    matches.clear();
    const TextBudget budget(text.size());
    if (pattern.FindAll(text, &matches).ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "pattern is not supported: it backtracks too long; for ", kRun, " times U+",
        absl::Hex(static_cast<uint32_t>(DecodeUtf8(character.data()).value), absl::kZeroPad4),
        " it takes ", budget.status().message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Pattern>> MakeRegexPattern(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat("pattern is longer than ", kMaxPatternBytes));
  }
  ASSIGN_OR_RETURN(const std::string translated, PatternTranslator(pattern).Translate());
  int error = 0;
  PCRE2_SIZE offset = 0;
  std::unique_ptr<pcre2_code, FreeCode> code(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT, &error, &offset, nullptr));
  if (code == nullptr) {
    PCRE2_UCHAR reason[128] = {};
    pcre2_get_error_message(error, reason, sizeof reason);
    return absl::InvalidArgumentError(
        absl::StrCat("pattern does not compile: ", reinterpret_cast<const char*>(reason)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::InvalidArgumentError("pattern is not supported: it matches the empty text");
  }
  // If the system forbids compiled code, matching uses the interpreter.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  auto made = std::make_unique<RegexPattern>(std::move(code));
  RETURN_IF_ERROR(ProbeRuns(pattern, *made));
  return made;
}

}  // namespace quire
