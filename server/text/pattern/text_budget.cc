// Counts down, and looks at the mark of the job now and then.
#include "server/text/pattern/text_budget.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/text/pattern/stop_mark.h"

namespace quire {
namespace {

thread_local TextBudget* thread_budget = nullptr;

}  // namespace

TextBudget::TextBudget(size_t text_bytes)
    : steps_(kSteps + kStepsPerByte * static_cast<int64_t>(text_bytes)),
      left_(steps_),
      next_look_(std::max<int64_t>(left_ - kStepsPerLook, 0)),
      outer_(thread_budget) {
  thread_budget = this;
}

TextBudget::~TextBudget() { thread_budget = outer_; }

TextBudget* TextBudget::OfThread() { return thread_budget; }

bool TextBudget::Look() {
  if (status_.ok()) status_ = StopMark::CheckThread();
  if (status_.ok() && left_ < 0) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("more than ", steps_, " steps, the bound for a text of this size"));
  }
  // After a failure every call comes here.
  next_look_ = status_.ok() ? std::max<int64_t>(left_ - kStepsPerLook, 0)
                            : std::numeric_limits<int64_t>::max();
  return status_.ok();
}

}  // namespace quire
