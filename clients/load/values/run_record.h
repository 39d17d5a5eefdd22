// RunRecord: everything one load run observed, as plain values: each request, its times and its
// answer. The driver fills it. All figures and reports are derived from it alone, so that a figure
// can be traced to its requests.
//
// All times are nanoseconds on one steady clock, counted from the start of the run; 0 for an event
// that never happened. Not thread-safe: the driver hands a finished record over.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "clients/load/values/latency_histogram.h"

namespace quire::load {

enum class Outcome : uint8_t {
  kPending,     // planned, and the run ended before it was sent
  kOk,          // Finished came, with status OK
  kCancelled,   // by the plan (random cancels), as asked
  kFailed,      // any other status, or a stream that broke the protocol
  kIncomplete,  // the run ended (interrupt, server gone, time limit) while it was in flight
};
const char* Name(Outcome outcome);

// The place of the KV of a prompt's known tokens, as Finished reports it.
struct ResidencyRecord {
  // Numbers of the proto's outcomes: unknown, none, device, restored, partial, recomputed.
  static constexpr size_t kOutcomes = 6;
  uint8_t outcome = 0;
  int32_t device_tokens = 0;
  int32_t host_tokens = 0;
  int32_t recomputed_tokens = 0;
  double restore_seconds = 0;
};

struct RequestRecord {
  uint64_t index = 0;         // in order of planned arrival
  int32_t conversation = -1;  // of a multi-turn workload; -1: none
  int32_t turn = 0;           // within the conversation, from 0
  int32_t priority = 0;
  bool warmup = false;       // sent, but left out of every figure
  bool slow_reader = false;  // this client read it slowly on purpose

  int64_t planned_ns = 0;  // its time by the schedule
  int64_t sent_ns = 0;     // handed to gRPC
  int64_t first_ns = 0;    // first frame with tokens received
  int64_t last_ns = 0;     // last frame with tokens received
  int64_t end_ns = 0;      // status received

  int32_t prompt_tokens = 0;     // as the server counted; before that, as planned
  int32_t requested_tokens = 0;  // max_tokens asked for
  int32_t output_tokens = 0;     // received, summed over frames
  int32_t frames = 0;            // frames with tokens
  int32_t cached_tokens = 0;     // usage: prompt tokens found in the cache
  int32_t preemptions = 0;       // usage
  ResidencyRecord residency;
  // The way to its first token, as Finished has it: seconds from the arrival at the server, 0 for
  // an event that never happened.
  struct {
    double opened = 0;  // its session's turn
    double restore_asked = 0;
    double restored = 0;
    double first_step = 0;
    double first_token = 0;
  } server;

  Outcome outcome = Outcome::kPending;
  int32_t status_code = 0;  // gRPC's
  std::string error;        // one sentence; empty when kOk
  // cumulative_tokens had a gap or a repetition, or a frame followed Finished.
  bool sequence_broken = false;

  // Only with --save-detailed: gap before each frame after the first, and every frame's tokens.
  std::vector<float> gap_seconds;      // [frames - 1]
  std::vector<uint16_t> frame_tokens;  // [frames]
  std::string text;
};

// One second of the run, for plots.
struct TimelinePoint {
  double seconds = 0;  // end of the interval, from the start of the run
  int32_t in_flight = 0;
  int32_t sent = 0;  // in the interval
  int32_t finished = 0;
  int32_t failed = 0;
  int64_t tokens = 0;  // received in the interval
  // From the server's /metrics; NaN when it is not scraped or did not answer.
  double kv_usage = std::numeric_limits<double>::quiet_NaN();  // 0 to 1
  double running = std::numeric_limits<double>::quiet_NaN();
  double waiting = std::numeric_limits<double>::quiet_NaN();
};

// The client's own fitness to measure.
struct ClientHealth {
  double lag_p99_seconds = 0;  // sent - planned, open loop; closed loop: slot free to sent
  double lag_max_seconds = 0;
  double cpu_share = 0;  // CPU seconds of this process / (wall seconds * threads used)
  int64_t peak_rss_bytes = 0;
  // Empty when valid; otherwise a sentence: "the client was the bottleneck: ...".
  std::string invalid_because;
};

enum class RunEnd : uint8_t { kCompleted, kInterrupted, kServerLost, kTimeLimit };
const char* Name(RunEnd end);

// Limits that a request must keep to count for goodput; 0: no limit.
struct GoodputLimits {
  double ttft_ms = 0;
  double tpot_ms = 0;
  double e2e_ms = 0;
  bool any() const { return ttft_ms > 0 || tpot_ms > 0 || e2e_ms > 0; }
};

// How the run was made; enough to make it again.
struct RunInfo {
  std::string date;      // UTC, "20261120-181500"
  std::string target;    // host:port or unix:path
  std::string model;     // as the server names it
  std::string server;    // its version and device, from GetServerInfo
  std::string workload;  // "W3", a trace's file name, or "custom"
  std::string command_line;
  std::string arrival;          // "closed", "poisson", "gamma", "fixed", "ramp", ...
  double request_rate = 0;      // requests/s; infinity: all at once
  double burstiness = 1;        // 1 is Poisson
  int32_t max_concurrency = 0;  // 0: unlimited
  uint64_t seed = 0;
  bool detailed = false;
  bool conversations = false;
  bool sessions = false;  // of the server's hold the histories
  GoodputLimits limits;
  std::vector<std::pair<std::string, std::string>> metadata;  // --metadata KEY=VALUE
};

struct RunRecord {
  RunInfo info;
  RunEnd end = RunEnd::kCompleted;
  std::string end_reason;   // a sentence when not kCompleted
  int64_t duration_ns = 0;  // of the measured part: first send to last end, warm-up left out
  std::vector<RequestRecord> requests;
  // Gaps between successive frames of a stream, over all measured requests, in seconds. Its size
  // does not grow with the run.
  LatencyHistogram gaps;
  // The same with each gap divided by the tokens of its frame, once per token.
  LatencyHistogram gaps_per_token;
  std::vector<TimelinePoint> timeline;
  ClientHealth health;
};

}  // namespace quire::load
