// Health: whether a run measured the server, or something else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "clients/load/values/latency_histogram.h"
#include "clients/load/values/run_record.h"
#include "clients/load/values/settings.h"

namespace quire::load {

// Resources that the process has used so far.
struct ProcessUse {
  double cpu_seconds = 0;
  int64_t peak_rss_bytes = 0;
};
ProcessUse UsedSoFar();

// Cores that this process's working threads can fill: gRPC's readers and the pacer, no more than
// the machine lends.
int32_t CoresUsed();

// Share of the offered rate that was served. A server that serves a share s of the arrivals falls
// 1 / s - 1 seconds further behind in every second, so each request takes that much longer than one
// planned a second before. s follows from the slope of the time from plan to end against the
// planned time, by least squares, without the first fifth, in which the server fills. Slowness that
// does not grow is not saturation. Two standard errors of the slope count in the server's favour.
// Refused requests count as not served; those that missed a deadline of the workload do not count.
// 1 when fewer than kEnoughToJudge were sent.
double ServedShare(const RunRecord& run);
inline constexpr size_t kEnoughToJudge = 20;

// A rate counts as met from this share on.
inline constexpr double kServedAtLeast = 0.9;

// Allowed lateness of sending, in seconds: 1 ms against a schedule. A closed loop has no schedule:
// lateness leaves a slot empty, so a hundredth of the median request's time is allowed if that is
// longer.
double LagLimit(const RunRecord& run, bool closed_loop);

// Judges the client. Fills all fields but invalid_because from the arguments, then that one from
// the limits: p99 of the lag under `lag_limit` seconds, and CPU under 80 % of the cores it can use.
ClientHealth JudgeClient(const LatencyHistogram& lags, double lag_limit, const ProcessUse& used,
                         double wall_seconds);

}  // namespace quire::load
