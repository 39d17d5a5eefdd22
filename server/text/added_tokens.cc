// Walks a trie from every byte that can start a token.
#include "server/text/added_tokens.h"

#include <algorithm>

#include "server/text/unicode/char_sets.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

bool IsSpaceAt(std::string_view text, size_t at) {
  return ClassOf(CharClasses(), DecodeUtf8(text.data() + at).value) == CharClass::kSpace;
}

size_t SpacesBefore(std::string_view text, size_t at, size_t floor) {
  while (at > floor) {
    const size_t previous = CodePointBegin(text, at - 1);
    if (!IsSpaceAt(text, previous)) break;
    at = previous;
  }
  return at;
}

size_t SpacesAfter(std::string_view text, size_t at) {
  while (at < text.size() && IsSpaceAt(text, at)) at = CodePointEnd(text, at);
  return at;
}

// Whether the text before byte `begin` ends with a word, or that from `end` on begins with one.
bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const size_t before = CodePointBegin(text, begin - 1);
    if (IsWordChar(DecodeUtf8(text.data() + before).value)) return true;
  }
  return end < text.size() && IsWordChar(DecodeUtf8(text.data() + end).value);
}

}  // namespace

void AddedTokenMatcher::Add(const AddedToken& token, const std::string& written) {
  starts_[static_cast<uint8_t>(written[0])] = true;
  int32_t node = 0;
  for (const char byte : written) {
    const auto& children = nodes_[node].children;
    const auto at = std::ranges::find(children, byte, &std::pair<char, int32_t>::first);
    if (at != children.end()) {
      node = at->second;
      continue;
    }
    const int32_t added = static_cast<int32_t>(nodes_.size());
    nodes_[node].children.emplace_back(byte, added);
    nodes_.emplace_back();
    node = added;
  }
  if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenMatcher::Match AddedTokenMatcher::LongestAt(std::string_view text, size_t at) const {
  Match longest{-1, 0};
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto& children = nodes_[node].children;
    const auto child = std::ranges::find(children, text[i], &std::pair<char, int32_t>::first);
    if (child == children.end()) break;
    node = child->second;
    if (nodes_[node].token >= 0) longest = {nodes_[node].token, i + 1 - at};
  }
  return longest;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::Split(std::string_view text,
                                                              bool parse_special) const {
  std::vector<Part> parts;
  size_t covered = 0;
  for (size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = LongestAt(text, at);
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[match.token];
    size_t begin = at, end = at + match.size;
    at = end;  // also past a special token that stays text, so that no token is found inside it
    if (token.special && !parse_special) continue;
    if (token.single_word && TouchesWord(text, begin, end)) continue;
    // The previous token may have taken the white space.
    if (token.lstrip) begin = SpacesBefore(text, begin, std::min(covered, begin));
    if (token.rstrip) end = SpacesAfter(text, end);
    if (covered < begin) parts.push_back({-1, covered, begin});
    parts.push_back({token.id, begin, end});
    covered = end;
  }
  if (covered < text.size()) parts.push_back({-1, covered, text.size()});
  return parts;
}

}  // namespace quire
