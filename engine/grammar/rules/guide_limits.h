// GuideLimits: the most that one grammar may cost, and WorkMeter, which counts what it did cost.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace quire {

// A grammar beyond a limit is refused, whatever it describes.
struct GuideLimits {
  size_t max_source_bytes = 1 << 20;   // of text and choices together
  size_t max_states = 100000;          // states of the automata of all rules together
  size_t max_rules = 20000;            // rules, and subschemas that become rules
  int max_depth = 64;                  // nesting of the source: groups, subschemas
  size_t max_work = size_t{20} << 20;  // elementary steps of compiling, about 10 ns each
  size_t max_mask_bytes = 64 << 20;    // masks that are kept; older ones are made again
};

// Counts states and steps. Once a limit is passed, every call says so.
class WorkMeter {
 public:
  explicit WorkMeter(const GuideLimits& limits) : limits_(limits) {}

  // False once there are too many.
  bool AddStates(size_t n) { return (states_ += n) <= limits_.max_states && Spend(n); }
  bool Spend(size_t steps) { return (work_ += steps) <= limits_.max_work; }
  bool exceeded() const { return states_ > limits_.max_states || work_ > limits_.max_work; }
  // INVALID_ARGUMENT names the limit; OK if none was passed.
  absl::Status status() const;
  const GuideLimits& limits() const { return limits_; }

 private:
  const GuideLimits limits_;
  size_t states_ = 0, work_ = 0;
};

}  // namespace quire
