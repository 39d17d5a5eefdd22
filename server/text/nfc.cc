// Canonical decomposition, reordering and composition over utf8proc's properties.
#include "server/text/nfc.h"

#include <utf8proc.h>

#include <algorithm>

#include "server/text/unicode.h"
#include "server/text/unicode_tables.h"

namespace quire {
namespace {

// Hangul syllables compose by arithmetic (Unicode §3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;

constexpr int kMaxDecomposition = 8;  // the longest canonical one has 4 code points

int DecomposeCodePoint(char32_t c, utf8proc_int32_t (&out)[kMaxDecomposition]) {
  int boundary = 0;
  return static_cast<int>(utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), out, kMaxDecomposition, UTF8PROC_DECOMPOSE, &boundary));
}

uint64_t PairKey(char32_t first, char32_t second) { return uint64_t{first} << 32 | second; }

}  // namespace

const NfcNormalizer& NfcNormalizer::Get() {
  static const NfcNormalizer normalizer;
  return normalizer;
}

NfcNormalizer::NfcNormalizer() : flags_(kTableSize), combining_class_(kTableSize) {
  std::vector<uint8_t> inert(kTableSize);
  for (size_t i = 0; i < kNfcInertRangesSize; ++i) {
    for (char32_t c = kNfcInertRanges[i].first; c <= kNfcInertRanges[i].last; ++c) inert[c] = 1;
  }
  for (char32_t c = 0xC0; c < kTableSize; ++c) {
    if (inert[c] || (c >= 0xD800 && c < 0xE000)) continue;
    combining_class_[c] = static_cast<uint8_t>(
        utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class);
    if (combining_class_[c] != 0) flags_[c] |= kActive;

    utf8proc_int32_t parts[kMaxDecomposition];
    const int count = DecomposeCodePoint(c, parts);
    if (count == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) continue;
    flags_[c] |= kDecomposes;
    const char32_t second = static_cast<char32_t>(parts[count - 1]);
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    utf8proc_int32_t whole[kMaxDecomposition];
    std::copy(parts, parts + count, whole);
    const bool composes = utf8proc_normalize_utf32(whole, count, options) == 1 &&
                          whole[0] == static_cast<utf8proc_int32_t>(c);
    if (!composes) {
      flags_[c] |= kActive;  // a singleton or a composition exclusion: NFC replaces it
      continue;
    }
    flags_[second] |= kActive;
    if (c >= kSyllables && c < kSyllables + kLeadCount * kVowelCount * kTailCount) continue;
    if (utf8proc_normalize_utf32(parts, count - 1, options) == 1) {
      pairs_[PairKey(static_cast<char32_t>(parts[0]), second)] = c;
    }
  }
}

bool NfcNormalizer::MayChange(std::string_view text) const {
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    if (static_cast<uint8_t>(*p) < 0xC3) {  // below U+00C0, where nothing is active
      ++p;
      continue;
    }
    const CodePoint c = DecodeUtf8(p);
    if (IsActive(c.value)) return true;
    p += c.size;
  }
  return false;
}

char32_t NfcNormalizer::ComposePair(char32_t first, char32_t second) const {
  if (!IsActive(second)) return 0;
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

std::vector<NfcNormalizer::Mark> NfcNormalizer::Decompose(std::string_view text) const {
  std::vector<Mark> out;
  out.reserve(text.size());
  size_t run = 0;  // start of the marks after the last starter, which get sorted by class
  const auto sort_run = [&] {
    std::stable_sort(out.begin() + run, out.end(), [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
  };
  const auto add = [&](char32_t c, int change) {
    const uint8_t combining_class = c < kTableSize ? combining_class_[c] : 0;
    if (combining_class == 0) {
      if (out.size() - run > 1) sort_run();
      run = out.size() + 1;
    }
    out.push_back({c, combining_class, change});
  };
  const char* const end = text.data() + text.size();
  for (const char* p = text.data(); p < end;) {
    const CodePoint c = DecodeUtf8(p);
    p += c.size;
    utf8proc_int32_t parts[kMaxDecomposition];
    const bool decomposes = c.value < kTableSize && (flags_[c.value] & kDecomposes) != 0;
    const int count = decomposes ? DecomposeCodePoint(c.value, parts) : 0;
    if (count == 0) add(c.value, 0);
    for (int i = 0; i < count; ++i) add(static_cast<char32_t>(parts[i]), i == 0 ? 0 : 1);
  }
  sort_run();
  return out;
}

std::vector<NfcNormalizer::Mark> NfcNormalizer::Compose(const std::vector<Mark>& decomposed) const {
  constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<Mark> out;
  out.reserve(decomposed.size());
  size_t starter = kNone;  // index in `out` of the starter that may still compose
  for (const Mark& mark : decomposed) {
    // Between the starter and this mark only marks of lower classes may stand, else it is blocked.
    const bool adjacent = starter != kNone && out.size() == starter + 1;
    const bool open =
        starter != kNone && (adjacent || out.back().combining_class < mark.combining_class);
    const char32_t whole = open ? ComposePair(out[starter].value, mark.value) : 0;
    if (whole != 0) {
      out[starter].value = whole;
      out[starter].change += mark.change - 1;
      continue;
    }
    if (mark.combining_class == 0) starter = out.size();
    out.push_back(mark);
  }
  return out;
}

void NfcNormalizer::Normalize(std::string_view text, std::string* out,
                              std::vector<TokenOffset>* origin) const {
  out->clear();
  if (origin != nullptr) origin->clear();
  TokenOffset before;  // the code point before `next`
  size_t next = 0;     // the first code point of `text` that no mark has replaced yet
  for (const Mark& mark : Compose(Decompose(text))) {
    const size_t size_before = out->size();
    AppendUtf8(mark.value, out);
    TokenOffset from = before;
    for (int replaced = mark.change; replaced <= 0 && next < text.size(); ++replaced) {
      before = {static_cast<int32_t>(next), static_cast<int32_t>(CodePointEnd(text, next))};
      if (replaced == mark.change) from = before;
      next = before.end;
    }
    if (origin != nullptr) origin->resize(origin->size() + out->size() - size_before, from);
  }
}

}  // namespace quire
