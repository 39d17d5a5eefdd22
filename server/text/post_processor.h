// PostProcessor: which special tokens stand around a text, and how offsets are trimmed. Immutable;
// any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"
#include "server/text/normalize/normalized_text.h"

namespace quire {

class PostProcessor {
 public:
  // The value of `post_processor`; INVALID_ARGUMENT names the first part that is not supported.
  static absl::StatusOr<PostProcessor> Read(const JsonNode& node);
  PostProcessor() = default;

  const std::vector<int32_t>& ids_before() const { return ids_before_; }
  const std::vector<int32_t>& ids_after() const { return ids_after_; }

  // Whether offsets leave out the white space at the ends of tokens.
  bool trims() const { return trims_; }
  // Trims the offset, in `source`, of a token written as `token`; `is_first` for the first of a
  // text. Call only if trims().
  void Trim(std::string_view source, std::string_view token, bool is_first,
            TokenOffset* offset) const;

 private:
  absl::Status ReadStep(const JsonNode& node);
  absl::Status ReadTemplate(const JsonNode& node);
  absl::Status ReadPairOfTokens(const JsonNode& node);
  absl::Status SetTrim(const JsonNode& node);

  std::vector<int32_t> ids_before_, ids_after_;
  bool adds_tokens_ = false;  // a step that adds tokens came
  bool trims_ = false;
  bool keeps_prefix_space_ = false;
};

}  // namespace quire
