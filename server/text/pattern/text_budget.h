// TextBudget: the bound on the work that regular expressions may do for one text, in steps, for all
// of its matches together. The scope of a text opens one on its thread; what matches on that thread
// takes from it. Without a bound, some patterns take time that is exponential in the text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace quire {

class TextBudget {
 public:
  // A step takes about 10 ns: 10 ms for a short text, and 3 us for each byte of a long one.
  // Patterns of real tokenizers take 2 to 10 steps a byte.
  static constexpr int64_t kSteps = int64_t{1} << 20;
  static constexpr int64_t kStepsPerByte = 256;

  // Becomes the thread's budget until its end; budgets nest.
  explicit TextBudget(size_t text_bytes);
  ~TextBudget();
  TextBudget(const TextBudget&) = delete;
  TextBudget& operator=(const TextBudget&) = delete;

  // The innermost budget of the thread; null if none is open.
  static TextBudget* OfThread();

  // Takes steps. False when none are left, or when the thread's StopMark ends the job: status()
  // then has the reason, and every later call is false too.
  bool Take(int64_t steps) {
    left_ -= steps;
    return left_ >= next_look_ || Look();
  }
  // RESOURCE_EXHAUSTED when the steps ran out, else the mark's status.
  const absl::Status& status() const { return status_; }

 private:
  // About a millisecond between two looks at the mark.
  static constexpr int64_t kStepsPerLook = int64_t{1} << 16;

  bool Look();

  const int64_t steps_;
  int64_t left_;
  int64_t next_look_;  // the steps that are left when the mark is looked at again
  absl::Status status_;
  TextBudget* const outer_;
};

}  // namespace quire
