// Sums of gaps, stretched to the exact mean rate.
#include "clients/load/workload/arrivals.h"

#include <algorithm>
#include <cmath>

#include "clients/load/workload/random.h"

namespace quire::load {
namespace {

double RateAt(const ArrivalSettings& settings, double progress) {
  const double start = settings.ramp_start_rps, end = settings.ramp_end_rps;
  switch (settings.ramp) {
    case Ramp::kNone: return settings.request_rate;
    case Ramp::kLinear: return start + (end - start) * progress;
    case Ramp::kExponential: return start * std::pow(end / start, progress);
  }
  return settings.request_rate;
}

double Gap(double rate, double burstiness, Random& random) {
  if (std::isinf(burstiness)) return 1 / rate;
  if (burstiness == 1) return random.Exponential() / rate;
  return random.Gamma(burstiness) / (rate * burstiness);
}

}  // namespace

std::vector<int64_t> ArrivalTimes(const ArrivalSettings& settings, int64_t count, uint64_t seed) {
  std::vector<int64_t> times(static_cast<size_t>(count), 0);
  if (settings.ramp == Ramp::kNone && std::isinf(settings.request_rate)) return times;
  Random random(seed, Draw::kArrivals, 0);
  std::vector<double> seconds(times.size());
  double sum = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const double progress =
        static_cast<double>(i) / static_cast<double>(std::max<int64_t>(count - 1, 1));
    sum += Gap(RateAt(settings, progress), settings.burstiness, random);
    seconds[i] = sum;
  }
  double stretch = 1;
  if (settings.ramp == Ramp::kNone && sum > 0) {
    stretch = static_cast<double>(count) / settings.request_rate / sum;
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    times[i] = static_cast<int64_t>(std::llround(seconds[i] * stretch * 1e9));
  }
  return times;
}

int64_t ArrivalsWithin(const ArrivalSettings& settings, double seconds) {
  double rate = settings.request_rate;
  if (settings.ramp == Ramp::kLinear) {
    // Interpolated over requests, not time: N requests take the sum of N mean gaps.
    const double start = settings.ramp_start_rps, end = settings.ramp_end_rps;
    rate = start == end ? start : (end - start) / std::log(end / start);
  } else if (settings.ramp == Ramp::kExponential) {
    const double start = settings.ramp_start_rps, end = settings.ramp_end_rps;
    rate = start == end ? start : std::log(end / start) / (1 / start - 1 / end);
  }
  return std::max<int64_t>(1, std::llround(rate * seconds));
}

const char* ArrivalName(const ArrivalSettings& settings) {
  if (settings.ramp != Ramp::kNone) return "ramp";
  if (std::isinf(settings.request_rate)) {
    return settings.max_concurrency > 0 ? "closed" : "all at once";
  }
  if (std::isinf(settings.burstiness)) return "fixed";
  return settings.burstiness == 1 ? "poisson" : "gamma";
}

bool IsClosedLoop(const ArrivalSettings& settings) {
  return settings.ramp == Ramp::kNone && std::isinf(settings.request_rate) &&
         settings.max_concurrency > 0;
}

}  // namespace quire::load
