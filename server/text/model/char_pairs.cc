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
      is_byte_(parts_.tokens.size()),
      words_(parts_.tokens.size()),
      tokens_(parts_.ignore_merges ? parts_.tokens.size() : 0) {
  byte_ids_.fill(-1);
  for (size_t i = 0; i < parts_.tokens.size(); ++i) {
    const std::string_view token = parts_.tokens[i];
    const auto id = static_cast<int32_t>(i);
    if (token.empty()) continue;
    if (const auto c = OnlyChar(token)) char_ids_.Set(*c, id);
    if (parts_.ignore_merges) tokens_.Add(token, id);
    if (!parts_.byte_fallback || !IsModelByte(token)) continue;
    byte_ids_[static_cast<uint8_t>(*ByteOfToken(token))] = id;
    is_byte_[i] = true;
  }
  RankAsciiPairs();
  FindWordBreaks();
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

void CharPairs::FindWordBreaks() {
  const int32_t space = char_ids_.Find(kSpaceChar);
  cuts_words_ = space >= 0 && space != parts_.unknown;
  for (const std::string_view token : parts_.tokens) {
    for (size_t at = token.find(kSpace); at != token.npos; at = token.find(kSpace, at + 1)) {
      if (at == 0) continue;
      joins_space_.Set(DecodeUtf8(token.data() + CodePointBegin(token, at - 1)).value, 0);
    }
  }
}

// The end of the word that begins at byte `at`.
size_t CharPairs::WordEnd(std::string_view piece, size_t at) const {
  if (!cuts_words_) return piece.size();
  for (size_t end = piece.find(kSpace, at + 1); end != piece.npos;
       end = piece.find(kSpace, end + 1)) {
    const char32_t before = DecodeUtf8(piece.data() + CodePointBegin(piece, end - 1)).value;
    if (joins_space_.Find(before) < 0) return end;
  }
  return piece.size();
}

bool CharPairs::AddBytes(std::string_view character, Word* work) const {
  if (!parts_.byte_fallback) return false;
  for (const char byte : character) {
    if (byte_ids_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : character) {
    work->symbols.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
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
  const size_t head = cuts_words_ && word.starts_with(kSpace) ? kSpace.size() : 0;
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

void CharPairs::AddSpans(uint32_t begin, const Word& work, std::vector<Span>* spans) const {
  size_t unknown = 0;
  for (const int32_t id : work.symbols) {
    uint32_t size = is_byte_[id] ? 1 : static_cast<uint32_t>(parts_.tokens[id].size());
    if (id == parts_.unknown) size = work.unknown_sizes[unknown++];
    spans->push_back({begin, begin + size});
    begin += size;
  }
}

void CharPairs::Encode(std::string_view text, std::span<const Span> pieces,
                       std::vector<int32_t>* ids, std::vector<Span>* spans) const {
  Word work;
  for (const Span& span : pieces) {
    const std::string_view piece = text.substr(span.begin, span.end - span.begin);
    const int32_t whole = parts_.ignore_merges ? tokens_.Find(piece) : -1;
    if (whole >= 0) {
      ids->push_back(whole);
      if (spans != nullptr) spans->push_back(span);
      continue;
    }
    for (size_t at = 0; at < piece.size();) {
      const size_t end = WordEnd(piece, at);
      const std::string_view word = piece.substr(at, end - at);
      const uint32_t begin = span.begin + static_cast<uint32_t>(at);
      at = end;
      if (const int32_t id = words_.Find(word); id >= 0) {
        ids->push_back(id);
        if (spans != nullptr) {
          spans->push_back({begin, begin + static_cast<uint32_t>(word.size())});
        }
        continue;
      }
      EncodeWord(word, &work);
      ids->insert(ids->end(), work.symbols.begin(), work.symbols.end());
      if (spans != nullptr) AddSpans(begin, work, spans);
    }
  }
}

}  // namespace quire
