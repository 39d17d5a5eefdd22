// Progress: live lines about a run.
#pragma once

#include <cstdint>
#include <deque>
#include <ostream>
#include <vector>

#include "clients/load/run/tally.h"
#include "clients/load/values/settings.h"

namespace quire::load {

// One line a second in place on a terminal (kLive), a plain line every ten seconds (kLines), or
// nothing. Not thread-safe.
class Progress {
 public:
  // `planned`: requests in all, or 0 if unknown. `out` may be null with kNone.
  Progress(ProgressStyle style, int64_t planned, std::ostream* out);

  // Once a second: seconds since the start, totals, and the times to first token of that second.
  void Tick(double seconds, const Tally::Totals& totals, std::vector<double> ttfts);
  // Ends the live line.
  void End();

 private:
  struct Second {
    double at = 0;
    Tally::Totals totals;
    std::vector<double> ttfts;
  };
  std::string Line() const;

  const ProgressStyle style_;
  const int64_t planned_;
  std::ostream* const out_;
  int64_t ticks_ = 0;
  std::deque<Second> last_;  // the last five seconds
};

}  // namespace quire::load
