// Cuts pieces into words that no merge joins, looks words up whole, and merges the others.
#include "server/text/model/char_pairs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/text/model/byte_tokens.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
constexpr char32_t kSpaceChar = 0x2581;

// The only code point of `token`, or nullopt.
std::optional<char32_t> OnlyChar(std::string_view token) {
  if (token.empty() || CodePointEnd(token, 0) != token.size()) return std::nullopt;
  return DecodeUtf8(token.data()).value;
}

CharIds CharIdsOf(const std::vector<std::string_view>& tokens) {
  CharIds ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (const auto c = OnlyChar(tokens[id])) ids.Set(*c, static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const CharPairs>> CharPairs::Make(Parts parts) {
  for (const MergeTable::Merge& merge : parts.merges) {
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      const bool is_byte = parts.byte_fallback && IsModelByte(parts.tokens[id]);
      if (!is_byte && id != parts.unknown) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("model.merges: a merge of ids ", merge.left, " and ", merge.right,
                       " uses the unknown token or the token of a byte, id ", id));
    }
  }
  return std::unique_ptr<const CharPairs>(new CharPairs(std::move(parts)));
}

CharPairs::CharPairs(Parts parts)
    : parts_(std::move(parts)),
      merges_(parts_.merges),
      char_ids_(CharIdsOf(parts_.tokens)),
      breaks_(parts_.tokens, parts_.merges, char_ids_, !parts_.unknown.has_value()),
      is_byte_(parts_.tokens.size()),
      words_(parts_.tokens.size()),
      tokens_(parts_.ignore_merges ? parts_.tokens.size() : 0) {
  byte_ids_.fill(-1);
  for (size_t i = 0; i < parts_.tokens.size(); ++i) {
    const std::string_view token = parts_.tokens[i];
    const auto id = static_cast<int32_t>(i);
    if (token.empty()) continue;
    if (parts_.ignore_merges) tokens_.Add(token, id);
    if (!parts_.byte_fallback || !IsModelByte(token)) continue;
    byte_ids_[static_cast<uint8_t>(*ByteOfToken(token))] = id;
    is_byte_[i] = true;
  }
  RankAsciiPairs();
  Word work;
  for (size_t i = 0; i < parts_.tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (parts_.tokens[i].empty() || id == parts_.unknown) continue;
    EncodeWord(parts_.tokens[i], &work);
    if (work.symbols.size() == 1 && work.symbols[0] == id) words_.Add(parts_.tokens[i], id);
  }
}

void CharPairs::RankAsciiPairs() {
  ascii_ranks_.assign(128 * 128, MergeTable::kNoRank);
  for (char32_t left = 0; left < 128; ++left) {
    for (char32_t right = 0; right < 128; ++right) {
      const int32_t a = char_ids_.Find(left), b = char_ids_.Find(right);
      if (a >= 0 && b >= 0) ascii_ranks_[left << 7 | right] = merges_.RankOf(a, b);
    }
  }
}

bool CharPairs::AddBytes(std::string_view character, Word* work) const {
  if (!parts_.byte_fallback) return false;
  for (const char byte : character) {
    if (byte_ids_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : character) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    work->symbols.push_back(id);
    if (id == parts_.unknown) work->unknown_sizes.push_back(1);
  }
  return true;
}

void CharPairs::EncodeWord(std::string_view word, Word* work) const {
  work->symbols.clear();
  work->unknown_sizes.clear();
  uint32_t pending = 0;  // bytes of an unknown token that is not added yet
  const auto add_pending = [&] {
    if (pending == 0) return;
    work->symbols.push_back(*parts_.unknown);
    work->unknown_sizes.push_back(pending);
    pending = 0;
  };
  for (size_t at = 0; at < word.size();) {
    const CodePoint c = DecodeUtf8(word.data() + at);
    const auto size = static_cast<uint32_t>(c.size);
    const int32_t id = char_ids_.Find(c.value);
    if (id >= 0) {
      add_pending();
      work->symbols.push_back(id);
      if (id == parts_.unknown) work->unknown_sizes.push_back(size);
    } else if (!AddBytes(word.substr(at, size), work) && parts_.unknown.has_value()) {
      // Bytes do not end an unknown token: it comes after them, as in the package.
      if (!parts_.fuse_unknown) add_pending();
      pending += size;
    }
    at += size;
  }
  add_pending();

  std::vector<int32_t>& symbols = work->symbols;
  if (symbols.size() > MergeTable::kMaxShort) {
    merges_.MergeLong(&symbols);
    return;
  }
  RankPairs(word, work);
  symbols.resize(merges_.MergeShort(symbols.data(), work->ranks.data(), symbols.size()));
}

// Fills the ranks of neighbours. Most words are ASCII after a space, with one symbol for each code
// point; the table knows nearly all of their pairs.
void CharPairs::RankPairs(std::string_view word, Word* work) const {
  const std::vector<int32_t>& symbols = work->symbols;
  const size_t count = symbols.size();
  const size_t head =
      char_ids_.Find(kSpaceChar) >= 0 && word.starts_with(kSpace) ? kSpace.size() : 0;
  const std::string_view tail = word.substr(head);
  const size_t first = head > 0 ? 1 : 0;  // symbols before the tail
  const bool in_table = count == first + tail.size() && std::ranges::all_of(tail, [](char byte) {
                          return static_cast<uint8_t>(byte) < 0x80;
                        });
  work->ranks.assign(count, MergeTable::kNoRank);
  for (size_t i = 0; i + 1 < count; ++i) {
    work->ranks[i] = in_table && i >= first
                         ? ascii_ranks_[static_cast<size_t>(tail[i - first]) << 7 |
                                        static_cast<size_t>(tail[i + 1 - first])]
                         : merges_.RankOf(symbols[i], symbols[i + 1]);
  }
}

void CharPairs::AddSpans(uint32_t begin, std::span<const int32_t> ids,
                         std::span<const uint32_t> unknown_sizes, std::vector<Span>* spans) const {
  size_t unknown = 0;
  for (const int32_t id : ids) {
    uint32_t size = is_byte_[id] ? 1 : static_cast<uint32_t>(parts_.tokens[id].size());
    if (id == parts_.unknown) size = unknown_sizes[unknown++];
    spans->push_back({begin, begin + size});
    begin += size;
  }
}

void CharPairs::Encode(std::string_view text, std::span<const Span> pieces,
                       std::vector<int32_t>* ids, std::vector<Span>* spans) const {
  Word work;
  WordCache& cache = WordCache::OfThread(cache_model_);
  for (const Span& span : pieces) {
    const std::string_view piece = text.substr(span.begin, span.end - span.begin);
    const int32_t whole = parts_.ignore_merges ? tokens_.Find(piece) : -1;
    if (whole >= 0) {
      ids->push_back(whole);
      if (spans != nullptr) spans->push_back(span);
      continue;
    }
    for (size_t at = 0; at < piece.size();) {
      const size_t end = breaks_.WordEnd(piece, at);
      const std::string_view word = piece.substr(at, end - at);
      work.unknown_sizes.clear();
      std::span<const int32_t> found = cache.Find(word);
      if (found.empty()) {
        found = FindWord(word, &work);
        // The sizes of unknown tokens are not kept.
        if (work.unknown_sizes.empty() && !found.empty()) cache.Keep(word, found);
      }
      ids->insert(ids->end(), found.begin(), found.end());
      if (spans != nullptr) {
        AddSpans(span.begin + static_cast<uint32_t>(at), found, work.unknown_sizes, spans);
      }
      at = end;
    }
  }
}

std::span<const int32_t> CharPairs::FindWord(std::string_view word, Word* work) const {
  if (const int32_t id = words_.Find(word); id >= 0) {
    work->symbols.assign(1, id);
  } else {
    EncodeWord(word, work);
  }
  return work->symbols;
}

}  // namespace quire
