// One function for each part of the object.
#include "server/admin/status_json.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>

#include "engine/base/clock.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// A letter for each owner, by its number: a map is a string.
constexpr std::string_view kBlockLetters = "fcswrx";
constexpr std::string_view kPageLetters = "unbcsx";
static_assert(kBlockLetters.size() == kNumBlockOwners && kPageLetters.size() == kNumPageOwners);

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Four digits behind the point: enough for a picture, and short.
double Rounded(double value) { return std::round(value * 1e4) / 1e4; }

Json RequestsJson(const StatusFacts& facts) {
  const SchedulerLoad& load = facts.engine.load;
  Json requests = {{"running", load.running},
                   {"waiting", load.waiting},
                   {"restoring", load.restoring},
                   {"paused", load.paused},
                   {"waiting_prompt_tokens", load.waiting_tokens},
                   {"open_streams", facts.open_streams},
                   {"detached_streams", facts.detached_streams}};
  if (facts.setup != nullptr) {
    requests["running_limit"] = facts.setup->config.max_num_seqs;
    requests["waiting_limit"] = facts.setup->limits.max_num_queued_reqs;
  }
  Json classes = Json::array();
  if (facts.view != nullptr) {
    for (const PriorityClass& one : facts.view->classes) {
      classes.push_back({{"priority", one.priority},
                         {"running", one.running},
                         {"waiting", one.waiting},
                         {"restoring", one.restoring}});
    }
  }
  requests["classes"] = std::move(classes);
  return requests;
}

Json TotalsJson(const EngineStats& engine) {
  return {{"steps", engine.steps},
          {"prompt_tokens", engine.prompt_tokens},
          {"generated_tokens", engine.generated_tokens},
          {"preemptions", engine.preemptions},
          {"worker_restarts", engine.recoveries},
          {"evicted_blocks", engine.cache.evicted_blocks},
          {"queried_tokens", engine.cache.queried_tokens},
          {"device_hit_tokens", engine.cache.device_tokens},
          {"host_hit_tokens", engine.cache.host_tokens}};
}

template <typename Owner, size_t kOwners>
Json CountsJson(const std::array<int32_t, kOwners>& counts) {
  Json json = Json::object();
  for (size_t i = 0; i < kOwners; ++i) json[Name(static_cast<Owner>(i))] = counts[i];
  return json;
}

template <typename Owner>
std::string Letters(const std::vector<Owner>& cells, std::string_view letters) {
  std::string text;
  text.reserve(cells.size());
  for (const Owner owner : cells) text += letters[static_cast<size_t>(owner)];
  return text;
}

Json MapJson(const SchedulerView& view) {
  const KvMap& map = view.kv;
  const double age = static_cast<double>(SteadyNowNs() - view.taken_ns) * 1e-9;
  return {{"age_seconds", Rounded(age)},
          {"took_microseconds", view.took_ns / 1000},
          {"blocks", CountsJson<BlockOwner>(map.blocks)},
          {"pages", CountsJson<PageOwner>(map.pages)},
          {"reserved_blocks", map.reserved_blocks},
          {"blocks_per_cell", map.blocks_per_cell},
          {"pages_per_cell", map.pages_per_cell},
          {"block_cells", Letters(map.block_cells, kBlockLetters)},
          {"page_cells", Letters(map.page_cells, kPageLetters)}};
}

Json KvJson(const StatusFacts& facts) {
  const SchedulerLoad& load = facts.engine.load;
  const CacheStats& cache = facts.engine.cache;
  Json kv = {{"blocks", load.total_blocks},
             {"used_blocks", load.total_blocks - load.free_blocks},
             {"cached_blocks", load.cached_blocks},
             {"pages", cache.host_pages},
             {"ready_pages", cache.host_pages_ready},
             {"used_pages", cache.host_pages_used}};
  if (facts.setup != nullptr) {
    const MemoryPlan& plan = facts.setup->memory;
    kv["block_tokens"] = plan.block_size;
    kv["block_bytes"] = plan.block_bytes();
    kv["page_bytes"] = plan.page_bytes();
  }
  kv["map"] = facts.view == nullptr ? Json() : MapJson(*facts.view);
  return kv;
}

Json SessionsJson(const CacheStats& cache) {
  Json by_state = Json::object();
  for (const SessionState state :
       {SessionState::kActive, SessionState::kResidentIdle, SessionState::kOffloading,
        SessionState::kHost, SessionState::kRestoring, SessionState::kDropped}) {
    std::string name = Name(state);
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    by_state[name] = cache.sessions_by_state[static_cast<size_t>(state)];
  }
  return {{"total", cache.sessions}, {"tokens", cache.session_tokens}, {"by_state", by_state}};
}

Json CopiesJson(const TieringStats& copies) {
  return {{"jobs_in_flight", copies.jobs_in_flight},
          {"stored_bytes", copies.stored_bytes},
          {"loaded_bytes", copies.loaded_bytes},
          {"store_bytes_per_second", std::round(copies.store_bytes_per_second)},
          {"load_bytes_per_second", std::round(copies.load_bytes_per_second)},
          {"failed_jobs", copies.failed_jobs},
          {"late_jobs", copies.late_jobs},
          {"corrupt_pages", copies.corrupt_pages}};
}

// The last sampled step of a rank, and the mean of all.
Json SampledJson(const SampledSteps& rank) {
  const double steps = static_cast<double>(std::max<uint64_t>(rank.steps, 1));
  Json parts = Json::array();
  for (int i = 0; i < kNumStepParts; ++i) {
    const auto part = static_cast<size_t>(i);
    parts.push_back(
        {{"name", Name(static_cast<StepPart>(i))},
         {"microseconds", Rounded(static_cast<double>(rank.last[part]) * 1e-3)},
         {"mean_microseconds", Rounded(static_cast<double>(rank.total[part]) * 1e-3 / steps)}});
  }
  return {{"steps", rank.steps},
          {"last_rows", rank.last_rows},
          {"last_tokens", rank.last_tokens},
          {"parts", parts}};
}

Json StepJson(const EngineStats& engine) {
  Json graphs = Json::array();
  for (const GraphUse& graph : engine.graphs) {
    graphs.push_back({{"size", graph.size},
                      {"replays", graph.replays},
                      {"padded_ratio", Rounded(graph.padded_share())}});
  }
  Json ranks = Json::array();
  for (const SampledSteps& rank : engine.sampled) ranks.push_back(SampledJson(rank));
  return {{"last_tokens", engine.last_step_tokens},
          {"last_microseconds", engine.last_step_ns / 1000},
          {"sampled_ranks", ranks},
          {"graphs", graphs}};
}

Json PlanJson(const MemoryPlan& plan) {
  Json parts = Json::array();
  for (const MemoryPlan::Part& part : plan.parts) {
    parts.push_back({{"name", part.name}, {"bytes", part.bytes}});
  }
  return {{"ranks", plan.ranks},
          {"parts", parts},
          {"total_bytes", plan.total_bytes()},
          {"budget_bytes", plan.budget_bytes},
          {"device_bytes", plan.device.total_bytes},
          {"host_bytes", plan.host_bytes},
          {"host_limit_bytes", plan.host_limit_bytes}};
}

Json SecondJson(const HistorySecond& second) {
  Json json = {{"number", second.number}, {"end_unix_seconds", Rounded(second.end_seconds)}};
  for (const HistorySeries& series : AllHistorySeries()) {
    const double value = series.value(second);
    json[series.name] = value < 0 ? Json() : Json(Rounded(value));
  }
  return json;
}

Json ProblemsJson(const std::vector<LoggedProblem>& problems) {
  Json json = Json::array();
  for (const LoggedProblem& problem : problems) {
    json.push_back({{"time", problem.time},
                    {"severity", problem.severity == Severity::kError ? "error" : "warning"},
                    {"text", problem.text}});
  }
  return json;
}

// A whole number without a point, others rounded; null if there is no value.
void AppendNumber(double value, std::string* text) {
  if (value < 0) {
    *text += "null";
    return;
  }
  char digits[40];
  const double rounded = value < 1000 ? Rounded(value) : std::round(value);
  const auto end = std::to_chars(digits, digits + sizeof digits, rounded, std::chars_format::fixed,
                                 rounded == std::floor(rounded) ? 0 : 4);
  text->append(digits, end.ptr);
}

}  // namespace

std::string StatusJson(const StatusFacts& facts) {
  Json status = {{"state", facts.state},
                 {"version", facts.version},
                 {"model", facts.model},
                 {"device", facts.device},
                 {"address", facts.address},
                 {"fault", facts.engine.fault},
                 {"time_unix_seconds", Rounded(SecondsSince1970())},
                 {"uptime_seconds", Rounded(facts.uptime_seconds)},
                 {"requests", RequestsJson(facts)},
                 {"now", SecondJson(facts.now)},
                 {"kv", KvJson(facts)},
                 {"sessions", SessionsJson(facts.engine.cache)},
                 {"steps", StepJson(facts.engine)},
                 {"copies", CopiesJson(facts.engine.tiering)},
                 {"totals", TotalsJson(facts.engine)},
                 {"problems", ProblemsJson(facts.problems)}};
  if (facts.setup != nullptr) status["memory_plan"] = PlanJson(facts.setup->memory);
  return status.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// By columns: a name stands once and not 600 times.
std::string HistoryJson(const std::vector<HistorySecond>& seconds) {
  std::string text = "{\"number\":[";
  const auto column = [&](auto value) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      if (i > 0) text += ',';
      AppendNumber(value(seconds[i]), &text);
    }
    text += ']';
  };
  column([](const HistorySecond& s) { return static_cast<double>(s.number); });
  text += ",\"end_unix_seconds\":[";
  column([](const HistorySecond& s) { return s.end_seconds; });
  for (const HistorySeries& series : AllHistorySeries()) {
    text += std::string(",\"") + series.name + "\":[";
    column(series.value);
  }
  return text + "}\n";
}

}  // namespace quire
