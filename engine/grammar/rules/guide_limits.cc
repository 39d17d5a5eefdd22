// The messages of the limits.
#include "engine/grammar/rules/guide_limits.h"

#include "absl/strings/str_cat.h"

namespace quire {

absl::Status WorkMeter::status() const {
  if (states_ > limits_.max_states) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grammar: needs more than ", limits_.max_states,
        " states; use smaller repeat counts, fewer alternatives or a less ambiguous pattern"));
  }
  if (work_ > limits_.max_work) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar: takes more than ", limits_.max_work,
                     " steps to compile; use fewer alternatives or a less ambiguous pattern"));
  }
  return absl::OkStatus();
}

}  // namespace quire
