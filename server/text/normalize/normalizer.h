// Normalizer: one step that rewrites text before it is cut into pieces. NormalizerChain: the
// `normalizer` of a tokenizer. Immutable; any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"
#include "server/text/normalize/normalized_text.h"

namespace quire {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // False if `text` (valid UTF-8) certainly stays as it is: such text is not copied.
  virtual bool MayChange(std::string_view text) const = 0;
  // Errors: Pattern::FindAll's.
  virtual absl::Status Apply(NormalizedText* text) const = 0;
};

class NormalizerChain {
 public:
  // The value of `normalizer`; INVALID_ARGUMENT names the first part that is not supported.
  static absl::StatusOr<NormalizerChain> Read(const JsonNode& node);
  NormalizerChain() = default;

  bool empty() const { return steps_.empty(); }
  // Applies the steps to `passage`. If a step rewrites it, the passage shows `work` from then on.
  // Origins are kept if `tracked`.
  absl::Status Run(bool tracked, Passage* passage, NormalizedText* work) const;

 private:
  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

}  // namespace quire
