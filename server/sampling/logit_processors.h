// LogitProcessors: the sets of biases, bans and bad words that requests may name, read from the
// file of --logit-processors. Immutable once loaded; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/values/sampling_params.h"

namespace quire {

class Tokenizer;

class LogitProcessors {
 public:
  static constexpr size_t kMaxNames = 8;  // of a request

  // No path: there are none. `tokenizer` may be null if no texts are in the file. NOT_FOUND or
  // INVALID_ARGUMENT name the file and the place in it: what is malformed, a text that is not one
  // token where a bias needs one, and lists that no request could have.
  static absl::StatusOr<LogitProcessors> Load(const std::string& path, const Tokenizer* tokenizer,
                                              int32_t vocab_size);

  std::vector<std::string> names() const;
  // Adds the named ones to a request's own lists: biases of a token add up, of allowed ids those
  // are left that all allow. INVALID_ARGUMENT for a name that is unknown or there twice, for too
  // many, and if no allowed id is left. The limits of the lists are not checked.
  absl::Status AddTo(const std::vector<std::string>& names, SamplingParams* out) const;

 private:
  std::map<std::string, SamplingParams> processors_;  // their lists; all else is the default
};

}  // namespace quire
