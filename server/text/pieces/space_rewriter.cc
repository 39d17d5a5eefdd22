// Copies the pieces, with the origins that Prepend and Replace give.
#include "server/text/pieces/space_rewriter.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace quire {

absl::StatusOr<PrependScheme> ReadPrependScheme(const JsonNode& node) {
  PrependScheme scheme = PrependScheme::kAlways;
  if (node.Has("prepend_scheme")) {
    ASSIGN_OR_RETURN(const std::string name, ReadString(node, "prepend_scheme"));
    if (name == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name == "never") {
      scheme = PrependScheme::kNever;
    } else if (name != "always") {
      return Refuse(node.At("prepend_scheme"));
    }
  }
  ASSIGN_OR_RETURN(const bool prefix, ReadBool(node, "add_prefix_space", true));
  if (prefix) return scheme;
  if (node.Has("prepend_scheme") && scheme != PrependScheme::kNever) {
    return Refuse(node.At("add_prefix_space"), "contradicts prepend_scheme");
  }
  return PrependScheme::kNever;
}

SpaceRewriter::SpaceRewriter(std::string space, PrependScheme scheme)
    : space_(std::move(space)), scheme_(scheme) {}

bool SpaceRewriter::MayChange(std::string_view piece) const {
  if (scheme_ != PrependScheme::kNever && !piece.starts_with(space_)) return true;
  return space_ != " " && piece.find(' ') != piece.npos;
}

void SpaceRewriter::Rewrite(const Passage& passage, std::span<const Span> pieces, bool tracked,
                            Text* out) const {
  out->text.clear();
  out->origin.clear();
  out->pieces.clear();
  for (const Span& piece : pieces) {
    const auto begin = static_cast<uint32_t>(out->text.size());
    const std::string_view text = passage.text.substr(piece.begin, piece.end - piece.begin);
    // The check follows the replacing, so a space counts as `space_`.
    const bool prefixed = text.starts_with(space_) || text.starts_with(' ');
    const bool at_start = scheme_ == PrependScheme::kAlways ||
                          (scheme_ == PrependScheme::kFirst &&
                           passage.ToSource(piece.begin, piece.begin + 1).begin == 0);
    if (at_start && !prefixed) {
      out->text += space_;
      if (tracked) {
        out->origin.resize(out->text.size(), passage.ToSource(piece.begin, piece.begin + 1));
      }
    }
    for (size_t at = 0; at < text.size();) {
      if (text[at] == ' ') {
        out->text += space_;
        ++at;
        if (tracked) {
          const size_t byte = piece.begin + at;
          out->origin.resize(out->text.size(), passage.ToSource(byte - 1, byte));
        }
        continue;
      }
      const size_t end = std::min(text.find(' ', at), text.size());
      out->text.append(text, at, end - at);
      for (; tracked && at < end; ++at) {
        const size_t byte = piece.begin + at;
        out->origin.push_back(passage.ToSource(byte, byte + 1));
      }
      at = end;
    }
    out->pieces.push_back({begin, static_cast<uint32_t>(out->text.size())});
  }
}

}  // namespace quire
