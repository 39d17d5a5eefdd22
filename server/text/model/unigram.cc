// The search for the best path follows the `tokenizers` package: of equal scores, the first found.
#include "server/text/model/unigram.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "server/text/model/byte_tokens.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

// How much worse an unknown code point is than the worst token (SentencePiece's constant).
constexpr double kUnknownPenalty = 10.0;

}  // namespace

absl::StatusOr<std::unique_ptr<const Unigram>> Unigram::Make(const Parts& parts) {
  if (parts.vocabulary.empty()) return absl::InvalidArgumentError("model.vocab: is empty");
  if (!parts.unknown.has_value()) {
    return absl::InvalidArgumentError(
        "model.unk_id: is missing; text with an unknown character could not be encoded");
  }
  if (static_cast<size_t>(*parts.unknown) >= parts.vocabulary.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.unk_id: ", *parts.unknown, " is not in the vocabulary"));
  }
  return std::unique_ptr<const Unigram>(new Unigram(parts));
}

Unigram::Unigram(const Parts& parts)
    : unknown_(*parts.unknown),
      byte_fallback_(parts.byte_fallback),
      single_precision_(parts.single_precision) {
  byte_ids_.fill(-1);
  root_children_.fill(-1);
  std::map<std::string, int32_t> sorted;
  double lowest = std::numeric_limits<double>::max();
  for (const auto& [token, score] : parts.vocabulary) {
    const auto id = static_cast<int32_t>(scores_.size());
    scores_.push_back(score.value_or(0));
    if (score.has_value()) {
      lowest = std::min(lowest, *score);
      if (!token.empty()) sorted[token] = id;
    }
    if (IsModelByte(token)) byte_ids_[static_cast<uint8_t>(*ByteOfToken(token))] = id;
  }
  unknown_score_ = lowest - kUnknownPenalty;
  BuildTrie({sorted.begin(), sorted.end()});
}

void Unigram::BuildTrie(const std::vector<std::pair<std::string, int32_t>>& sorted) {
  // Each node stands for the tokens [begin, end), which share their first `depth` bytes. Nodes are
  // made level by level, so that the children of one stand in a row.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, sorted.size(), 0}};
  nodes_.emplace_back();
  bytes_.push_back(0);
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && sorted[begin].first.size() == depth)
      nodes_[node].id = sorted[begin++].second;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = sorted[begin].first[depth];
      size_t next = begin;
      while (next < end && sorted[next].first[depth] == byte) ++next;
      ranges.push_back({begin, next, depth + 1});
      nodes_.emplace_back();
      bytes_.push_back(static_cast<uint8_t>(byte));
      ++nodes_[node].num_children;
      begin = next;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].num_children; ++i) {
    const uint32_t child = nodes_[0].first_child + i;
    root_children_[bytes_[child]] = static_cast<int32_t>(child);
  }
}

int32_t Unigram::Child(uint32_t node, uint8_t byte) const {
  if (node == 0) return root_children_[byte];
  const auto begin = bytes_.begin() + nodes_[node].first_child;
  const auto end = begin + nodes_[node].num_children;
  const auto at = std::lower_bound(begin, end, byte);
  return at == end || *at != byte ? -1 : static_cast<int32_t>(at - bytes_.begin());
}

int32_t Unigram::Find(std::string_view token) const {
  int32_t node = 0;
  for (const char byte : token) {
    node = Child(static_cast<uint32_t>(node), static_cast<uint8_t>(byte));
    if (node < 0) return -1;
  }
  return nodes_[node].id;
}

void Unigram::FindBest(std::string_view piece, std::vector<Best>* best) const {
  best->assign(piece.size() + 1, Best{});
  const auto offer = [this, best](size_t end, Best candidate) {
    Best& at = (*best)[end];
    if (single_precision_) candidate.score = static_cast<float>(candidate.score);
    if (at.begin == UINT32_MAX || candidate.score > at.score) at = candidate;
  };
  for (size_t begin = 0; begin < piece.size();) {
    const double so_far = (*best)[begin].score;
    const auto from = static_cast<uint32_t>(begin);
    const size_t one = CodePointEnd(piece, begin);
    bool has_single = false;
    int32_t node = 0;
    for (size_t at = begin; at < piece.size();) {
      node = Child(static_cast<uint32_t>(node), static_cast<uint8_t>(piece[at++]));
      if (node < 0) break;
      const int32_t id = nodes_[node].id;
      if (id < 0) continue;
      offer(at, {scores_[id] + so_far, from, id});
      has_single |= at == one;
    }
    if (!has_single) offer(one, {unknown_score_ + so_far, from, unknown_});
    begin = one;
  }
}

void Unigram::AddToken(std::string_view token, int32_t id, uint32_t begin,
                       std::vector<int32_t>* ids, std::vector<Span>* spans) const {
  const Span span = {begin, begin + static_cast<uint32_t>(token.size())};
  const bool has_bytes = byte_fallback_ && std::ranges::all_of(token, [this](char byte) {
                           return byte_ids_[static_cast<uint8_t>(byte)] >= 0;
                         });
  if (id >= 0 || !has_bytes) {
    ids->push_back(id >= 0 ? id : unknown_);
    if (spans != nullptr) spans->push_back(span);
    return;
  }
  for (const char byte : token) {
    ids->push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    if (spans != nullptr) spans->push_back(span);
  }
}

void Unigram::Encode(std::string_view text, std::span<const Span> pieces, std::vector<int32_t>* ids,
                     std::vector<Span>* spans) const {
  std::vector<Best> best;
  std::vector<Best> path;  // of the piece, from its end
  for (const Span& span : pieces) {
    const std::string_view piece = text.substr(span.begin, span.end - span.begin);
    FindBest(piece, &best);
    path.clear();
    for (size_t end = piece.size(); end > 0; end = best[end].begin) path.push_back(best[end]);
    for (size_t i = path.size(); i > 0;) {
      const Best& first = path[--i];
      // Unknown code points in a row are one token.
      while (first.id == unknown_ && i > 0 && path[i - 1].id == unknown_) --i;
      const size_t end = i > 0 ? path[i - 1].begin : piece.size();
      const std::string_view token = piece.substr(first.begin, end - first.begin);
      const int32_t id = first.id == unknown_ ? Find(token) : first.id;
      AddToken(token, id, span.begin + first.begin, ids, spans);
    }
  }
}

}  // namespace quire
