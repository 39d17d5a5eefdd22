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
  r.server.first_step = 0.020;
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

namespace {

// One server: a prompt takes its turn, then decodes at a speed that falls with the queue.
RequestRecord Served(double arrival, double* busy_until, std::mt19937_64* random) {
  std::lognormal_distribution<double> prompts(5.5, 0.9), outputs(4.7, 0.7);
  std::exponential_distribution<double> jitter(1.0);
  const int prompt = std::clamp(static_cast<int>(prompts(*random)), 8, 4000);
  const int output = std::clamp(static_cast<int>(outputs(*random)), 1, 800);
  const double start = std::max(arrival, *busy_until);
  *busy_until = start + 0.02 + prompt * 1e-4;
  const double queue = start - arrival;
  const double first = *busy_until + 0.01 * jitter(*random);
  const double gap = 0.018 + 0.004 * std::min(queue, 4.0) + 0.002 * jitter(*random);
  const double last = first + gap * (output - 1);
  const auto ns = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
  RequestRecord r = MadeRequest({}, prompt, output);
  r.planned_ns = ns(arrival);
  r.sent_ns = r.planned_ns + ns(2e-5 * jitter(*random));
  r.first_ns = ns(first);
  r.last_ns = ns(last);
  r.end_ns = r.last_ns + 200000;
  r.server.first_step = queue;
  return r;
}

void AddGaps(const RequestRecord& r, std::mt19937_64* random, RunRecord* run) {
  std::exponential_distribution<double> jitter(1.0);
  const double mean =
      r.output_tokens > 1 ? (r.last_ns - r.first_ns) * 1e-9 / (r.output_tokens - 1) : 0;
  for (int i = 1; i < r.output_tokens; ++i) {
    const double stall = jitter(*random) > 5 ? 6 : 1;  // another request's prefill
    const double gap = mean * (0.7 + 0.25 * jitter(*random)) * stall;
    run->gaps.Add(gap);
    run->gaps_per_token.Add(gap);
  }
}

void AddTimeline(RunRecord* run) {
  const auto seconds = static_cast<int>(run->duration_ns / 1000000000) + 1;
  for (int t = 1; t <= seconds; ++t) {
    TimelinePoint point;
    point.seconds = t;
    double held = 0;
    for (const RequestRecord& r : run->requests) {
      const double sent = r.sent_ns * 1e-9, first = r.first_ns * 1e-9, last = r.last_ns * 1e-9;
      point.sent += sent >= t - 1 && sent < t;
      point.finished += last >= t - 1 && last < t;
      point.in_flight += sent < t && last >= t;
      held += sent < t && last >= t ? r.prompt_tokens + r.output_tokens : 0;
      const double overlap = std::min<double>(last, t) - std::max<double>(first, t - 1);
      if (overlap > 0 && last > first) {
        point.tokens += static_cast<int64_t>(r.output_tokens * overlap / (last - first));
      }
    }
    const bool scraped = t % 20 < 17;  // now and then /metrics does not answer
    if (scraped) {
      point.kv_usage = std::min(1.0, held / 60000);
      point.running = std::min(point.in_flight, 64);
      point.waiting = point.in_flight - point.running;
    }
    run->timeline.push_back(point);
  }
}

}  // namespace

RunRecord PlausibleRun(double rate, double seconds) {
  RunRecord run = HandMadeRun();
  run.requests.clear();
  run.timeline.clear();
  run.gaps = run.gaps_per_token = LatencyHistogram();
  run.info.model = "Llama-3.1-8B-Instruct";
  run.info.workload = "W2";
  run.info.arrival = "poisson";
  run.info.request_rate = rate;
  run.info.limits = {500, 30, 0};
  std::mt19937_64 random(static_cast<uint64_t>(rate * 1000));
  std::exponential_distribution<double> wait(rate);
  double busy_until = 0;
  for (double at = wait(random); at < seconds; at += wait(random)) {
    run.requests.push_back(Served(at, &busy_until, &random));
    run.requests.back().index = run.requests.size() - 1;
    AddGaps(run.requests.back(), &random, &run);
    run.duration_ns = std::max(run.duration_ns, run.requests.back().end_ns);
  }
  AddTimeline(&run);
  run.health = {2e-4, 9e-4, 0.21, 96 << 20, ""};
  return run;
}

}  // namespace quire::load
