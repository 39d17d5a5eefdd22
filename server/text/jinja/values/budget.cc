// Counts steps, and reads the clock now and then.
#include "server/text/jinja/values/budget.h"

#include <time.h>

#include "absl/strings/str_cat.h"

namespace quire::jinja {
namespace {

constexpr int64_t kStepsPerClockRead = 256;

// Of this thread, so that the load of the machine does not count against the template.
int64_t CpuNowNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Budget::Budget(const Limits& limits) : limits_(limits), deadline_ns_(CpuNowNs() + limits.time_ns) {}

absl::Status Budget::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps) {
    return absl::InvalidArgumentError(absl::StrCat("more than ", limits_.steps, " steps"));
  }
  since_clock_ += steps;
  if (since_clock_ < kStepsPerClockRead) return absl::OkStatus();
  since_clock_ = 0;
  if (CpuNowNs() <= deadline_ns_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("more than ", limits_.time_ns / 1'000'000, " ms"));
}

absl::Status Budget::CheckText(size_t bytes) const {
  if (bytes <= limits_.output_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("more than ", limits_.output_bytes, " bytes of text"));
}

}  // namespace quire::jinja
