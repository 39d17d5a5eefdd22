// Looks up grapheme clusters of up to 5 bytes as a whole, longer ones by code point, as the
// `tokenizers` package does.
#include "server/text/normalize/precompiled.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/text/unicode/unicode.h"
#include "server/text/unicode/unicode_tables.h"

namespace quire {
namespace {

constexpr size_t kMaxWholeCluster = 5;

// A double-array trie: the unit of a node holds the byte that leads to it, the offset of its
// children, and whether a value ends there. All reads are checked, for the array is a file's.
class DoubleArray {
 public:
  explicit DoubleArray(std::vector<uint32_t> units) : units_(std::move(units)) {}

  // The value of the shortest key that `text` begins with.
  std::optional<uint32_t> ShortestPrefix(std::string_view text) const {
    size_t at = Offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte == 0) break;
      at ^= byte;
      if (at >= units_.size() || Label(units_[at]) != byte) break;
      const bool has_leaf = (units_[at] >> 8 & 1) != 0;
      at ^= Offset(units_[at]);
      if (!has_leaf) continue;
      if (at >= units_.size()) break;
      return units_[at] & 0x7FFFFFFFu;
    }
    return std::nullopt;
  }

 private:
  static size_t Offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }
  static uint32_t Label(uint32_t unit) { return unit & (1u << 31 | 0xFFu); }

  const std::vector<uint32_t> units_;  // not empty
};

// A combining mark of Unicode 16.0 that utf8proc does not know yet: it belongs to what it follows.
bool IsNewMark(char32_t c) {
  if (utf8proc_category(static_cast<utf8proc_int32_t>(c)) != UTF8PROC_CATEGORY_CN) return false;
  const std::span<const CategoryRange> ranges(kSinceUnicode14, kSinceUnicode14Size);
  return std::ranges::any_of(ranges, [c](const CategoryRange& range) {
    return range.category[0] == 'M' && c >= range.first && c <= range.last;
  });
}

class Precompiled final : public Normalizer {
 public:
  Precompiled(std::vector<uint32_t> units, std::string forms)
      : trie_(std::move(units)), forms_(std::move(forms)) {}

  bool MayChange(std::string_view text) const override { return !text.empty(); }

  absl::Status Apply(NormalizedText* text) const override {
    std::vector<CharChange> changes;
    bool changed = false;
    const std::string_view all = text->text();
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = ClusterEnd(all, begin);
      changed |= AddCluster(all.substr(begin, end - begin), &changes);
      begin = end;
    }
    if (changed) text->Transform(changes);
    return absl::OkStatus();
  }

 private:
  static size_t ClusterEnd(std::string_view text, size_t at) {
    CodePoint last = DecodeUtf8(text.data() + at);
    utf8proc_int32_t state = 0;
    for (at += last.size; at < text.size(); at += last.size) {
      const CodePoint next = DecodeUtf8(text.data() + at);
      const bool breaks =
          utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state);
      if (breaks && !IsNewMark(next.value)) break;
      last = next;
    }
    return at;
  }

  std::optional<std::string_view> FormOf(std::string_view part) const {
    const std::optional<uint32_t> at = trie_.ShortestPrefix(part);
    if (!at.has_value() || *at > forms_.size()) return std::nullopt;
    // A place within a code point can only be a damaged file's.
    if (*at < forms_.size() && (static_cast<uint8_t>(forms_[*at]) & 0xC0) == 0x80) {
      return std::nullopt;
    }
    const size_t end = std::min(forms_.find('\0', *at), forms_.size());
    return std::string_view(forms_).substr(*at, end - *at);
  }

  // Adds the normal form of one cluster; true if it has one.
  bool AddCluster(std::string_view cluster, std::vector<CharChange>* changes) const {
    if (cluster.size() <= kMaxWholeCluster) {
      if (const auto form = FormOf(cluster)) {
        AddForm(cluster, *form, changes);
        return true;
      }
    }
    bool changed = false;
    for (size_t at = 0; at < cluster.size();) {
      const CodePoint c = DecodeUtf8(cluster.data() + at);
      const std::string_view part = cluster.substr(at, static_cast<size_t>(c.size));
      if (const auto form = FormOf(part)) {
        AddForm(part, *form, changes);
        changed = true;
      } else {
        changes->push_back({c.value, 0});
      }
      at += c.size;
    }
    return changed;
  }

  static int32_t CountOf(std::string_view text) {
    int32_t count = 0;
    for (size_t at = 0; at < text.size(); at = CodePointEnd(text, at)) ++count;
    return count;
  }

  // The code points that a form adds come last. What a form removes goes with its last one, or with
  // the one before an empty form.
  static void AddForm(std::string_view part, std::string_view form,
                      std::vector<CharChange>* changes) {
    const int32_t added = CountOf(form) - CountOf(part);
    for (size_t at = 0; at < form.size();) {
      const CodePoint c = DecodeUtf8(form.data() + at);
      changes->push_back({c.value, 0});
      at += c.size;
    }
    for (int32_t i = 0; i < added; ++i) (changes->end() - 1 - i)->change = 1;
    if (added < 0 && !changes->empty()) changes->back().change += added;
  }

  const DoubleArray trie_;
  const std::string forms_;  // valid UTF-8
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Normalizer>> MakePrecompiled(std::string_view charsmap) {
  uint32_t trie_bytes = 0;
  if (charsmap.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, charsmap.data(), 4);
  if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > charsmap.size() - 4) {
    return absl::InvalidArgumentError("precompiled_charsmap is damaged: the size of its trie");
  }
  std::vector<uint32_t> units(trie_bytes / 4);
  std::memcpy(units.data(), charsmap.data() + 4, trie_bytes);
  std::string forms(charsmap.substr(4 + trie_bytes));
  if (FindInvalidUtf8(forms) != std::string_view::npos) {
    return absl::InvalidArgumentError("precompiled_charsmap is damaged: invalid UTF-8");
  }
  return std::make_unique<Precompiled>(std::move(units), std::move(forms));
}

absl::StatusOr<std::string> DecodeBase64(std::string_view text) {
  std::string out;
  if (!absl::Base64Unescape(absl::string_view(text.data(), text.size()), &out)) {
    return absl::InvalidArgumentError("is not base64");
  }
  return out;
}

}  // namespace quire
