// Rates over the last seconds.
#include "clients/load/run/progress.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire::load {
namespace {

constexpr size_t kSeconds = 5;
constexpr int64_t kTicksBetweenLines = 10;

std::string Milliseconds(std::vector<double>& sorted, double share) {
  if (sorted.empty()) return "-";
  const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1));
  const double ms = 1e3 * sorted[at];
  return ms < 100 ? absl::StrFormat("%.3g", ms) : absl::StrFormat("%.0f", ms);
}

}  // namespace

Progress::Progress(ProgressStyle style, int64_t planned, std::ostream* out)
    : style_(out == nullptr ? ProgressStyle::kNone : style), planned_(planned), out_(out) {
  last_.emplace_back();
}

void Progress::Tick(double seconds, const Tally::Totals& totals, std::vector<double> ttfts) {
  if (style_ == ProgressStyle::kNone) return;
  ++ticks_;
  last_.push_back({seconds, totals, std::move(ttfts)});
  if (last_.size() > kSeconds + 1) last_.pop_front();
  if (style_ == ProgressStyle::kLive) {
    // Wrapping is off: on a narrow terminal the rest of the line must not begin a second one.
    *out_ << "\x1b[?7l\r" << Line() << "\x1b[K\x1b[?7h" << std::flush;
  } else if (ticks_ % kTicksBetweenLines == 0) {
    *out_ << Line() << std::endl;
  }
}

void Progress::End() {
  if (style_ == ProgressStyle::kLive && ticks_ > 0) *out_ << std::endl;
}

std::string Progress::Line() const {
  const Second& first = last_.front();
  const Second& now = last_.back();
  const double span = std::max(now.at - first.at, 1e-3);
  std::vector<double> ttfts;
  for (size_t i = 1; i < last_.size(); ++i) {
    ttfts.insert(ttfts.end(), last_[i].ttfts.begin(), last_[i].ttfts.end());
  }
  std::sort(ttfts.begin(), ttfts.end());
  const Tally::Totals& totals = now.totals;
  return absl::StrFormat(
      "%4.0fs  in flight %d  done %d%s  %.1f req/s  %.0f tok/s  TTFT p50 %s p99 %s ms  errors %d",
      now.at, totals.sent - totals.ended, totals.ended,
      planned_ > 0 ? absl::StrCat("/", planned_) : "",
      static_cast<double>(totals.ended - first.totals.ended) / span,
      static_cast<double>(totals.tokens - first.totals.tokens) / span, Milliseconds(ttfts, 0.5),
      Milliseconds(ttfts, 0.99), totals.failed);
}

}  // namespace quire::load
