// The thread that advances the time of the next line logs this one.
#include "engine/model/checkpoint/load_progress.h"

#include <cmath>

#include "engine/base/log.h"

namespace quire {
namespace {

// Decimal gigabytes with one digit, for people.
double Gigabytes(double bytes) { return std::round(bytes * 1e-8) / 10; }

}  // namespace

void LoadProgress::Add(int64_t bytes, int64_t now_ns) {
  const int64_t read = read_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t next_ns = next_ns_.load(std::memory_order_relaxed);
  if (now_ns < next_ns || !next_ns_.compare_exchange_strong(next_ns, now_ns + kIntervalNs)) return;
  const double seconds = static_cast<double>(now_ns - start_ns_) * 1e-9;
  Log(Severity::kInfo, "loading weights",
      {{"gigabytes", Gigabytes(static_cast<double>(read))},
       {"of_gigabytes", Gigabytes(static_cast<double>(total_bytes_))},
       {"gigabytes_per_second", Gigabytes(static_cast<double>(read) / seconds)}});
}

}  // namespace quire
