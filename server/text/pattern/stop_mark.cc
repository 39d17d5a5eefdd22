// The thread's mark is a thread-local pointer, so that no step of the text has to carry it.
#include "server/text/pattern/stop_mark.h"

#include <utility>

#include "engine/base/clock.h"

namespace quire {
namespace {

thread_local const StopMark* thread_mark = nullptr;

}  // namespace

StopMark::Scope::Scope(const StopMark* mark) : outer_(std::exchange(thread_mark, mark)) {}

StopMark::Scope::~Scope() { thread_mark = outer_; }

absl::Status StopMark::Check() const {
  if (raised_.load(std::memory_order_relaxed)) {
    return absl::CancelledError("the call ended while its text was read");
  }
  if (deadline_ns_ != kNoDeadline && SteadyNowNs() >= deadline_ns_) {
    return absl::DeadlineExceededError("the deadline passed while the text was read");
  }
  return absl::OkStatus();
}

absl::Status StopMark::CheckThread() {
  return thread_mark == nullptr ? absl::OkStatus() : thread_mark->Check();
}

}  // namespace quire
