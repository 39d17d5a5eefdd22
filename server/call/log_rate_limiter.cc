// The thread that advances the time of the next line logs this one.
#include "server/call/log_rate_limiter.h"

namespace quire {

int64_t LogRateLimiter::Count(int64_t now_ns) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  unlogged_.fetch_add(1, std::memory_order_relaxed);
  int64_t next_ns = next_ns_.load(std::memory_order_relaxed);
  if (now_ns < next_ns || !next_ns_.compare_exchange_strong(next_ns, now_ns + kSecondNs)) return 0;
  return unlogged_.exchange(0, std::memory_order_relaxed);
}

}  // namespace quire
