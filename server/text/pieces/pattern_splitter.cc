// Lists matches and the text between them, then joins or drops them.
#include "server/text/pieces/pattern_splitter.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "server/text/unicode/byte_alphabet.h"

namespace quire {
namespace {

struct Part {
  Span span;
  bool is_match;
};

class PatternSplitter final : public PieceSplitter {
 public:
  PatternSplitter(std::unique_ptr<const Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    std::vector<Span> matches;
    std::vector<Part> parts;
    for (const Span& piece : pieces) {
      matches.clear();
      RETURN_IF_ERROR(
          pattern_->FindAll(text.substr(piece.begin, piece.end - piece.begin), &matches));
      ListParts(piece, matches, &parts);
      Join(parts, out);
    }
    return absl::OkStatus();
  }

 private:
  void ListParts(const Span& piece, const std::vector<Span>& matches,
                 std::vector<Part>* parts) const {
    parts->clear();
    uint32_t at = piece.begin;
    for (const Span& match : matches) {
      const uint32_t begin = piece.begin + match.begin, end = piece.begin + match.end;
      if (at < begin) parts->push_back({{at, begin}, invert_});
      parts->push_back({{begin, end}, !invert_});
      at = end;
    }
    if (at < piece.end) parts->push_back({{at, piece.end}, invert_});
  }

  // Whether parts[i] continues the piece of the part before it.
  bool Joins(const std::vector<Part>& parts, size_t i) const {
    const bool before = parts[i - 1].is_match, now = parts[i].is_match;
    switch (behavior_) {
      case SplitBehavior::kContiguous: return before == now;
      case SplitBehavior::kMergedWithPrevious: return now && !before;
      case SplitBehavior::kMergedWithNext: return before && !now;
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated: return false;
    }
    return false;
  }

  void Join(const std::vector<Part>& parts, std::vector<Span>* out) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (behavior_ == SplitBehavior::kRemoved && parts[i].is_match) continue;
      if (i > 0 && Joins(parts, i)) {
        out->back().end = parts[i].span.end;
      } else {
        out->push_back(parts[i].span);
      }
    }
  }

  const std::unique_ptr<const Pattern> pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
};

class AlphabetSplitter final : public PieceSplitter {
 public:
  explicit AlphabetSplitter(std::unique_ptr<const PieceSplitter> splitter)
      : splitter_(std::move(splitter)) {}

  absl::Status Split(std::string_view text, std::span<const Span> pieces,
                     std::vector<Span>* out) const override {
    // The written text of all pieces, and where each of its bytes comes from.
    std::string written;
    std::vector<uint32_t> source;
    std::vector<Span> written_pieces, cut;
    for (const Span& piece : pieces) {
      const auto begin = static_cast<uint32_t>(written.size());
      for (uint32_t at = piece.begin; at < piece.end; ++at) {
        AppendWritten(static_cast<uint8_t>(text[at]), &written);
        source.resize(written.size(), at);
      }
      written_pieces.push_back({begin, static_cast<uint32_t>(written.size())});
    }
    RETURN_IF_ERROR(splitter_->Split(written, written_pieces, &cut));
    for (const Span& part : cut) out->push_back({source[part.begin], source[part.end - 1] + 1});
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<const PieceSplitter> splitter_;
};

}  // namespace

std::unique_ptr<const PieceSplitter> MakePatternSplitter(std::unique_ptr<const Pattern> pattern,
                                                         SplitBehavior behavior, bool invert) {
  return std::make_unique<PatternSplitter>(std::move(pattern), behavior, invert);
}

std::unique_ptr<const PieceSplitter> MakeAlphabetSplitter(
    std::unique_ptr<const PieceSplitter> splitter) {
  return std::make_unique<AlphabetSplitter>(std::move(splitter));
}

absl::StatusOr<SplitBehavior> ReadSplitBehavior(const JsonNode& node) {
  static constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  ASSIGN_OR_RETURN(const std::string name, ReadString(node, "behavior"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return Refuse(node.At("behavior"));
}

}  // namespace quire
