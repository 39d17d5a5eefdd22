// ArrivalTimes: the time at which each request of an open loop is due. Times are fixed before the
// run, so that a slow server cannot slow down its own load.
//
// Gaps follow vLLM's serve benchmark: gamma distributed with shape `burstiness` and scale 1 / (rate
// * burstiness), evenly spaced for infinite burstiness; without a ramp all times are then stretched
// by one factor so that the last of N lies at N / rate exactly. A ramp's rate at request i of N is
// interpolated, linearly or exponentially, at i / (N - 1).
#pragma once

#include <cstdint>
#include <vector>

#include "clients/load/values/settings.h"

namespace quire::load {

// Nanoseconds from the start, in order, `count` of them; all zero when neither a ramp nor a finite
// rate is set. The same settings and seed give the same times.
std::vector<int64_t> ArrivalTimes(const ArrivalSettings& settings, int64_t count, uint64_t seed);

// Number of requests that a finite rate or ramp plans in so many seconds; at least 1.
int64_t ArrivalsWithin(const ArrivalSettings& settings, double seconds);

// The word of RunInfo::arrival: "closed", "all at once", "fixed", "poisson", "gamma", "ramp".
const char* ArrivalName(const ArrivalSettings& settings);

// True if requests wait for replies: a limit on concurrency and no rate.
bool IsClosedLoop(const ArrivalSettings& settings);

}  // namespace quire::load
