// Run records made by hand or by a formula.
#include "tests/clients/load/made_runs.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace quire::load {
namespace {

constexpr int64_t kMs = 1000000;

RequestRecord WithOutcome(RequestRecord request, Outcome outcome) {
  request.outcome = outcome;
  if (outcome == Outcome::kFailed) {
    request.status_code = 14;
    request.error = "UNAVAILABLE: connection reset by the server";
  }
  return request;
}

}  // namespace

RequestRecord MadeRequest(MadeTimes t, int prompt_tokens, int output_tokens) {
  RequestRecord r;
  r.planned_ns = t.planned_ms * kMs;
  r.sent_ns = t.sent_ms * kMs;
  r.first_ns = t.first_ms * kMs;
  r.last_ns = t.last_ms * kMs;
  r.end_ns = t.end_ms * kMs;
  r.prompt_tokens = prompt_tokens;
  r.output_tokens = r.requested_tokens = r.frames = output_tokens;
  r.server_queue_seconds = 0.020;
  r.outcome = Outcome::kOk;
  return r;
}

RunRecord HandMadeRun() {
  RunRecord run;
  run.info.date = "20261120-181500";
  run.info.target = "127.0.0.1:50051";
  run.info.model = "tiny";
  run.info.server = "quire 0.1.0 cpu";
  run.info.workload = "custom";
  run.info.command_line = "quire-load --request-rate 10";
  run.info.arrival = "fixed";
  run.info.request_rate = 10;
  run.info.seed = 7;
  run.duration_ns = 1502 * kMs;
  RequestRecord warmup = MadeRequest({0, 0, 5000, 6000, 6001}, 99, 50);
  warmup.warmup = true;
  RequestRecord slow = MadeRequest({0, 0, 7000, 9000, 9001}, 99, 50);
  slow.slow_reader = true;
  run.requests = {
      warmup,
      MadeRequest({0, 0, 100, 500, 501}, 10, 5),
      MadeRequest({100, 101, 301, 301, 302}, 20, 1),
      MadeRequest({200, 203, 253, 1253, 1254}, 30, 11),
      MadeRequest({300, 300, 700, 1500, 1502}, 40, 17),
      slow,
      WithOutcome(MadeRequest({400, 402, 0, 0, 410}, 50, 0), Outcome::kFailed),
      WithOutcome(MadeRequest({500, 500, 650, 950, 951}, 60, 4), Outcome::kCancelled),
      MadeRequest({600, 600, 0, 0, 640}, 7, 0),
      WithOutcome(MadeRequest({700, 700, 800, 800, 0}, 8, 1), Outcome::kIncomplete),
      WithOutcome(MadeRequest({800, 0, 0, 0, 0}, 9, 0), Outcome::kPending),
  };
  for (size_t i = 0; i < run.requests.size(); ++i) run.requests[i].index = i;
  run.gaps.Add(0.050, 40);
  run.gaps_per_token.Add(0.025, 80);
  run.timeline.resize(2);
  run.timeline[0].seconds = 1;
  run.timeline[0].tokens = 30;
  run.timeline[1].seconds = 1.502;
  run.timeline[1].tokens = 9;
  return run;
}

}  // namespace quire::load
