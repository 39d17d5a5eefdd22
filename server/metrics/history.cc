// A ring of records, each the difference of two moments of the engine's counts.
#include "server/metrics/history.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace quire {
namespace {

// A call that comes sooner belongs to the same second: while draining the server looks more often.
constexpr double kShortestSecond = 0.5;

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct GraphSums {
  uint64_t replays = 0, rows = 0, padded = 0;

  explicit GraphSums(const EngineStats& stats) {
    for (const GraphUse& graph : stats.graphs) {
      replays += graph.replays;
      rows += graph.replays * static_cast<uint64_t>(graph.size);
      padded += graph.padded_rows;
    }
  }
};

double Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Milliseconds, and -1 where there is no value.
double Ms(double seconds) { return seconds < 0 ? -1 : seconds * 1e3; }

template <SessionState kState>
double Sessions(const HistorySecond& s) {
  return s.sessions[static_cast<size_t>(kState)];
}

constexpr HistorySeries kSeries[] = {
    {"prompt_tokens_per_second", [](const HistorySecond& s) { return s.prompt_tokens_per_second; }},
    {"generated_tokens_per_second",
     [](const HistorySecond& s) { return s.generated_tokens_per_second; }},
    {"requests_running", [](const HistorySecond& s) -> double { return s.running; }},
    {"requests_waiting", [](const HistorySecond& s) -> double { return s.waiting; }},
    {"requests_restoring", [](const HistorySecond& s) -> double { return s.restoring; }},
    {"first_token_p50_ms", [](const HistorySecond& s) { return Ms(s.first_token.p50); }},
    {"first_token_p90_ms", [](const HistorySecond& s) { return Ms(s.first_token.p90); }},
    {"first_token_p99_ms", [](const HistorySecond& s) { return Ms(s.first_token.p99); }},
    {"inter_token_p50_ms", [](const HistorySecond& s) { return Ms(s.inter_token.p50); }},
    {"inter_token_p90_ms", [](const HistorySecond& s) { return Ms(s.inter_token.p90); }},
    {"inter_token_p99_ms", [](const HistorySecond& s) { return Ms(s.inter_token.p99); }},
    {"kv_used_blocks", [](const HistorySecond& s) -> double { return s.used_blocks; }},
    {"kv_cached_blocks", [](const HistorySecond& s) -> double { return s.cached_blocks; }},
    {"host_used_pages", [](const HistorySecond& s) -> double { return s.used_pages; }},
    {"sessions_active", Sessions<SessionState::kActive>},
    {"sessions_resident_idle", Sessions<SessionState::kResidentIdle>},
    {"sessions_offloading", Sessions<SessionState::kOffloading>},
    {"sessions_host", Sessions<SessionState::kHost>},
    {"sessions_restoring", Sessions<SessionState::kRestoring>},
    {"sessions_dropped", Sessions<SessionState::kDropped>},
    {"stored_bytes_per_second", [](const HistorySecond& s) { return s.stored_bytes_per_second; }},
    {"loaded_bytes_per_second", [](const HistorySecond& s) { return s.loaded_bytes_per_second; }},
    {"steps_per_second", [](const HistorySecond& s) { return s.steps_per_second; }},
    {"step_mean_ms", [](const HistorySecond& s) { return Ms(s.step_seconds); }},
    {"graph_ratio", [](const HistorySecond& s) { return s.graph_ratio; }},
    {"graph_padded_ratio", [](const HistorySecond& s) { return s.padded_ratio; }},
};

}  // namespace

std::span<const HistorySeries> AllHistorySeries() { return kSeries; }

Quantiles History::Window::Add(const LatencySketch& sketch, size_t slot) {
  const LatencySketch::Counts now = sketch.Read();
  seconds[slot] = Difference(now, total);
  total = now;
  LatencySketch::Counts sum{};
  for (const LatencySketch::Counts& second : seconds) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  }
  return QuantilesOf(sum);
}

void History::AddRates(const EngineStats& stats, double seconds, HistorySecond* second) const {
  // An engine that was replaced or not made yet counts from zero again.
  const auto rate = [seconds](auto now, auto before) {
    return now < before ? 0.0 : static_cast<double>(now - before) / seconds;
  };
  second->prompt_tokens_per_second = rate(stats.prompt_tokens, last_stats_.prompt_tokens);
  second->generated_tokens_per_second = rate(stats.generated_tokens, last_stats_.generated_tokens);
  second->stored_bytes_per_second =
      rate(stats.tiering.stored_bytes, last_stats_.tiering.stored_bytes);
  second->loaded_bytes_per_second =
      rate(stats.tiering.loaded_bytes, last_stats_.tiering.loaded_bytes);
  second->steps_per_second = rate(stats.steps, last_stats_.steps);
  if (stats.steps <= last_stats_.steps) return;
  const uint64_t steps = stats.steps - last_stats_.steps;
  second->step_seconds = static_cast<double>(stats.steps_ns - last_stats_.steps_ns) * 1e-9 /
                         static_cast<double>(steps);
  const GraphSums now(stats), before(last_stats_);
  second->graph_ratio = Ratio(now.replays - before.replays, steps);
  second->padded_ratio = Ratio(now.padded - before.padded, now.rows - before.rows);
}

void History::Add(const EngineStats& stats, const LatencySketch& first_token,
                  const LatencySketch& inter_token, int64_t now_ns) {
  const double seconds = static_cast<double>(now_ns - last_ns_) * 1e-9;
  const bool first = last_ns_ == 0;
  if (!first && seconds < kShortestSecond) return;
  const size_t slot = static_cast<size_t>(number_) % kLatencySeconds;
  HistorySecond second{.end_seconds = SecondsSince1970(),
                       .running = stats.load.running,
                       .waiting = stats.load.waiting,
                       .restoring = stats.load.restoring,
                       .first_token = first_token_.Add(first_token, slot),
                       .inter_token = inter_token_.Add(inter_token, slot),
                       .used_blocks = stats.load.total_blocks - stats.load.free_blocks,
                       .cached_blocks = stats.load.cached_blocks,
                       .used_pages = stats.cache.host_pages_used};
  for (size_t i = 0; i < second.sessions.size(); ++i) {
    second.sessions[i] = static_cast<int32_t>(stats.cache.sessions_by_state[i]);
  }
  if (!first) AddRates(stats, seconds, &second);
  last_stats_ = stats;
  last_ns_ = now_ns;
  if (first) return;
  second.number = ++number_;
  const std::lock_guard lock(mutex_);
  if (ring_.size() < kSeconds) {
    ring_.push_back(second);
  } else {
    ring_[static_cast<size_t>(number_ - 1) % kSeconds] = second;
  }
}

std::vector<HistorySecond> History::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<HistorySecond> seconds = ring_;
  std::ranges::sort(seconds, {}, &HistorySecond::number);
  return seconds;
}

HistorySecond History::Last() const {
  const std::lock_guard lock(mutex_);
  if (ring_.empty()) return {};
  return *std::ranges::max_element(ring_, {}, &HistorySecond::number);
}

}  // namespace quire
