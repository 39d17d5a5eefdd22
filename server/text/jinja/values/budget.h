// Budget: how much work one render may still do. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace quire::jinja {

struct Limits {
  // One for each evaluation, for 64 bytes of text, and for 16 items of a list that is copied. An
  // item takes 64 bytes, so the values that a render holds at once may take 1 KiB a step, and
  // 1 GB in all. Fewer items a step would refuse a chat of 4096 messages that a template appends to
  // a list one by one.
  int64_t steps = 1'000'000;
  size_t output_bytes = 4 << 20;  // of the text, and of any string on the way
  int64_t time_ns = 100'000'000;  // of the calling thread's CPU time
};

class Budget {
 public:
  explicit Budget(const Limits& limits);

  // INVALID_ARGUMENT when the steps or the time are used up.
  absl::Status Charge(int64_t steps);
  absl::Status ChargeText(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 64)); }
  absl::Status ChargeItems(size_t items) { return Charge(static_cast<int64_t>(items / 16)); }
  // INVALID_ARGUMENT for a text that is longer than any may be.
  absl::Status CheckText(size_t bytes) const;

  const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  const int64_t deadline_ns_;
  int64_t steps_ = 0;
  int64_t since_clock_ = 0;
};

}  // namespace quire::jinja
