// Decomposition, reordering and composition over utf8proc's properties.
#include "server/text/normalize/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>

#include "server/text/unicode/char_set_tables.h"
#include "server/text/unicode/unicode.h"
#include "server/text/unicode/unicode_tables.h"

namespace quire {
namespace {

// Hangul syllables compose by arithmetic (Unicode §3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;

constexpr int kMaxDecomposition = 24;  // the longest one, of U+FDFA, has 18 code points

constexpr uint8_t kActiveNfc = 1, kActiveNfd = 2, kActiveNfkc = 4, kActiveNfkd = 8;
constexpr uint8_t kActive[] = {kActiveNfc, kActiveNfd, kActiveNfkc, kActiveNfkd};  // by Kind
constexpr uint8_t kDecomposes = 16;  // has a canonical decomposition
constexpr uint8_t kCompatible = 32;  // has a compatible one that differs

struct Parts {
  utf8proc_int32_t at[kMaxDecomposition];
  int count = 0;
};

Parts DecomposeCodePoint(char32_t c, bool compatible) {
  Parts parts;
  int boundary = 0;
  const int options = compatible ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE;
  parts.count = static_cast<int>(
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.at, kMaxDecomposition,
                              static_cast<utf8proc_option_t>(options), &boundary));
  return parts;
}

uint64_t PairKey(char32_t first, char32_t second) { return uint64_t{first} << 32 | second; }

}  // namespace

class UnicodeForm::Tables {
 public:
  static const Tables& Get() {
    static const Tables tables;
    return tables;
  }
  bool Has(char32_t c, uint8_t flag) const { return c < kSize && (flags_[c] & flag) != 0; }
  uint8_t CombiningClass(char32_t c) const { return c < kSize ? combining_class_[c] : 0; }
  char32_t ComposePair(char32_t first, char32_t second) const;  // 0: they do not compose

 private:
  static constexpr char32_t kSize = 0x2FA20;  // past the last code point that decomposes

  Tables();
  void AddCanonical(char32_t c, Parts parts);

  std::vector<uint8_t> flags_;            // by code point
  std::vector<uint8_t> combining_class_;  // by code point
  std::unordered_map<uint64_t, char32_t> pairs_;
};

UnicodeForm::Tables::Tables() : flags_(kSize), combining_class_(kSize) {
  std::vector<uint8_t> inert(kSize);
  const auto mark = [&inert](const CodeRange* ranges, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      for (char32_t c = ranges[i].first; c <= ranges[i].last; ++c) inert[c] = 1;
    }
  };
  mark(kNfcInertRanges, kNfcInertRangesSize);
  mark(kCompatInertRanges, kCompatInertRangesSize);
  for (char32_t c = 0xA0; c < kSize; ++c) {
    if (inert[c] || (c >= 0xD800 && c < 0xE000)) continue;
    combining_class_[c] = static_cast<uint8_t>(
        utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
    if (combining_class_[c] != 0) {
      flags_[c] |= kActiveNfc | kActiveNfd | kActiveNfkc | kActiveNfkd;
    }
    const auto is_itself = [c](const Parts& parts) {
      return parts.count == 1 && parts.at[0] == static_cast<utf8proc_int32_t>(c);
    };
    const Parts canonical = DecomposeCodePoint(c, false), compatible = DecomposeCodePoint(c, true);
    if (!is_itself(canonical)) AddCanonical(c, canonical);
    const bool same = canonical.count == compatible.count &&
                      std::equal(canonical.at, canonical.at + canonical.count, compatible.at);
    if (!is_itself(compatible)) flags_[c] |= kActiveNfkd;
    if (!same) flags_[c] |= kCompatible | kActiveNfkc;
  }
}

// Enters a code point with a canonical decomposition, and the pair that composes to it.
void UnicodeForm::Tables::AddCanonical(char32_t c, Parts parts) {
  flags_[c] |= kDecomposes | kActiveNfd | kActiveNfkd;
  const char32_t second = static_cast<char32_t>(parts.at[parts.count - 1]);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  Parts whole = parts;
  const bool composes = utf8proc_normalize_utf32(whole.at, whole.count, options) == 1 &&
                        whole.at[0] == static_cast<utf8proc_int32_t>(c);
  if (!composes) {
    // A singleton or a composition exclusion: the composed forms replace it.
    flags_[c] |= kActiveNfc | kActiveNfkc;
    return;
  }
  flags_[second] |= kActiveNfc | kActiveNfkc;
  if (c >= kSyllables && c < kSyllables + kLeadCount * kVowelCount * kTailCount) return;
  if (utf8proc_normalize_utf32(parts.at, parts.count - 1, options) == 1) {
    pairs_[PairKey(static_cast<char32_t>(parts.at[0]), second)] = c;
  }
}

char32_t UnicodeForm::Tables::ComposePair(char32_t first, char32_t second) const {
  if (!Has(second, kActiveNfc)) return 0;
  if (first - kLeads < kLeadCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  const char32_t syllable = first - kSyllables;
  if (syllable < kLeadCount * kVowelCount * kTailCount && syllable % kTailCount == 0 &&
      second - kTails - 1 < kTailCount - 1) {
    return first + (second - kTails);
  }
  const auto at = pairs_.find(PairKey(first, second));
  return at == pairs_.end() ? 0 : at->second;
}

UnicodeForm::UnicodeForm(Kind kind)
    : tables_(Tables::Get()),
      compatible_(kind == Kind::kNfkc || kind == Kind::kNfkd),
      composed_(kind == Kind::kNfc || kind == Kind::kNfkc),
      active_(kActive[static_cast<int>(kind)]) {}

bool UnicodeForm::MayChange(std::string_view text) const {
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    if (static_cast<uint8_t>(*p) < 0xC2) {  // ASCII, where nothing is active
      ++p;
      continue;
    }
    const CodePoint c = DecodeUtf8(p);
    if (tables_.Has(c.value, active_)) return true;
    p += c.size;
  }
  return false;
}

std::vector<UnicodeForm::Mark> UnicodeForm::Decompose(std::string_view text) const {
  std::vector<Mark> out;
  out.reserve(text.size());
  size_t run = 0;  // start of the marks after the last starter, which get sorted by class
  const auto sort_run = [&] {
    std::stable_sort(
        out.begin() + static_cast<ptrdiff_t>(run), out.end(),
        [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
  };
  const auto add = [&](char32_t c, int change) {
    const uint8_t combining_class = tables_.CombiningClass(c);
    if (combining_class == 0) {
      if (out.size() - run > 1) sort_run();
      run = out.size() + 1;
    }
    out.push_back({{c, change}, combining_class});
  };
  const uint8_t decomposes = compatible_ ? kDecomposes | kCompatible : kDecomposes;
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const CodePoint c = DecodeUtf8(p);
    p += c.size;
    if (!tables_.Has(c.value, decomposes)) {
      add(c.value, 0);
      continue;
    }
    const Parts parts = DecomposeCodePoint(c.value, compatible_);
    for (int i = 0; i < parts.count; ++i) {
      add(static_cast<char32_t>(parts.at[i]), i == 0 ? 0 : 1);
    }
  }
  if (run < out.size()) sort_run();
  return out;
}

std::vector<UnicodeForm::Mark> UnicodeForm::Compose(const std::vector<Mark>& decomposed) const {
  constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<Mark> out;
  out.reserve(decomposed.size());
  size_t starter = kNone;  // index in `out` of the starter that may still compose
  for (const Mark& mark : decomposed) {
    // Between the starter and this mark only marks of lower classes may stand, else it is blocked.
    const bool adjacent = starter != kNone && out.size() == starter + 1;
    const bool open =
        starter != kNone && (adjacent || out.back().combining_class < mark.combining_class);
    const char32_t whole = open ? tables_.ComposePair(out[starter].c.value, mark.c.value) : 0;
    if (whole != 0) {
      out[starter].c.value = whole;
      out[starter].c.change += mark.c.change - 1;
      continue;
    }
    if (mark.combining_class == 0) starter = out.size();
    out.push_back(mark);
  }
  return out;
}

absl::Status UnicodeForm::Apply(NormalizedText* text) const {
  std::vector<Mark> marks = Decompose(text->text());
  if (composed_) marks = Compose(marks);
  std::vector<CharChange> changes;
  changes.reserve(marks.size());
  for (const Mark& mark : marks) changes.push_back(mark.c);
  text->Transform(changes);
  return absl::OkStatus();
}

}  // namespace quire
