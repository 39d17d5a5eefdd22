// SpaceRewriter: the rewriting part of the pre-tokenizers Metaspace and ByteLevel: spaces get
// another character, and a piece without a leading one may get one. Immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"
#include "server/text/normalize/normalized_text.h"

namespace quire {

// Which pieces get the character at their begin: those at the begin of the source, all, none.
enum class PrependScheme : uint8_t { kFirst, kAlways, kNever };
// The members `prepend_scheme` and, in older files, `add_prefix_space` of a Metaspace.
absl::StatusOr<PrependScheme> ReadPrependScheme(const JsonNode& node);

class SpaceRewriter {
 public:
  // `space` stands for the space: one code point, or the space itself.
  SpaceRewriter(std::string space, PrependScheme scheme);

  struct Text {
    std::string text;
    std::vector<TokenOffset> origin;  // empty unless tracked
    std::vector<Span> pieces;
  };
  // Writes the rewritten `pieces` of `passage` to `out`.
  void Rewrite(const Passage& passage, std::span<const Span> pieces, bool tracked, Text* out) const;
  // False if Rewrite certainly leaves this one piece as it is.
  bool MayChange(std::string_view piece) const;
  PrependScheme scheme() const { return scheme_; }

 private:
  const std::string space_;
  const PrependScheme scheme_;
};

}  // namespace quire
