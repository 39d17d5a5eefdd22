// StopMark: tells a text job that its call has ended, so that the job ends too. The call owns the
// mark and raises it from any thread; the job's thread looks at it between the pieces of its text
// and within the matches of a regular expression.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"

namespace quire {

class StopMark {
 public:
  static constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

  // A mark with a deadline, on the steady clock, raises itself.
  explicit StopMark(int64_t deadline_ns = kNoDeadline) : deadline_ns_(deadline_ns) {}

  void Raise() { raised_.store(true, std::memory_order_relaxed); }
  // CANCELLED once the mark is raised, DEADLINE_EXCEEDED after the deadline.
  absl::Status Check() const;

  // While it lives, `mark` is the one of the thread's job. Scopes nest.
  class Scope {
   public:
    explicit Scope(const StopMark* mark);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const StopMark* const outer_;
  };

  // Looks at the mark of the thread's job; OK outside of jobs.
  static absl::Status CheckThread();

 private:
  const int64_t deadline_ns_;
  std::atomic<bool> raised_{false};
};

}  // namespace quire
