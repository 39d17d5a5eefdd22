// PreTokenizer: cuts a normalized text into the pieces that a model makes tokens of. Immutable; any
// thread.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"
#include "server/text/normalize/normalized_text.h"
#include "server/text/pieces/piece_splitter.h"
#include "server/text/pieces/space_rewriter.h"

namespace quire {

class PreTokenizer {
 public:
  // The value of `pre_tokenizer`; INVALID_ARGUMENT names the first part that is not supported.
  static absl::StatusOr<PreTokenizer> Read(const JsonNode& node);
  PreTokenizer() = default;

  // The buffers of one thread; they may serve many calls.
  struct Work {
    std::vector<Span> pieces;  // the result of Run
    std::vector<Span> next;
    SpaceRewriter::Text rewritten, spare;
  };
  // Cuts `passage`, which is not empty, into work->pieces. A step that rewrites the text makes the
  // passage show `work`. Origins are kept if `tracked`.
  absl::Status Run(bool tracked, Passage* passage, Work* work) const;

  // Whether a model for it works on bytes: the pre-tokenizer has a ByteLevel.
  bool byte_level() const { return byte_level_; }
  // Whether Run must know where pieces come from, tracked or not.
  bool needs_origin() const;

 private:
  using Step = std::variant<std::unique_ptr<const PieceSplitter>, SpaceRewriter>;

  absl::Status ReadStep(const JsonNode& node);
  absl::Status ReadByteLevel(const JsonNode& node);
  absl::Status ReadMetaspace(const JsonNode& node);
  absl::Status ReadSplit(const JsonNode& node);
  void Add(std::unique_ptr<const PieceSplitter> splitter);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace quire
