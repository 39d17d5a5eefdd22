// Tables of facts in a page that fits a phone.
#include "server/admin/status_page.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace quire {
namespace {

constexpr std::string_view kHead =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    "<meta http-equiv=\"refresh\" content=\"5\"><title>Quire</title><style>"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:1.5rem auto;padding:0 1rem;"
    "color:#222;background:#fff}"
    "h2{font-size:1.1rem;margin:1.2rem 0 "
    ".2rem}table{width:100%;border-collapse:collapse}td{padding:.3rem 0;border-bottom:1px solid "
    "#ddd}"
    "td+td{text-align:right;overflow-wrap:anywhere}a{margin-right:1rem}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#111}td{border-color:#333}"
    "a{color:#8bf}}</style></head><body>";

std::string Escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string Row(std::string_view name, std::string_view value) {
  return "<tr><td>" + std::string(name) + "</td><td>" + Escaped(value) + "</td></tr>";
}

std::string Section(std::string_view title, std::string_view rows) {
  return "<h2>" + std::string(title) + "</h2><table>" + std::string(rows) + "</table>";
}

std::string Duration(double seconds) {
  const auto whole = static_cast<long long>(seconds);
  char text[64];
  std::snprintf(text, sizeof text, "%lld d %02lld:%02lld:%02lld", whole / 86400, whole / 3600 % 24,
                whole / 60 % 60, whole % 60);
  return text;
}

// With thousands separated, for people: 1,234,567.
std::string Count(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string Count(uint64_t number) { return Count(static_cast<int64_t>(number)); }

// "25 of 100 blocks (25 %)".
std::string Use(int64_t used, int64_t total, std::string_view unit) {
  const double total_or_one = static_cast<double>(std::max<int64_t>(total, 1));
  char percent[32];
  std::snprintf(percent, sizeof percent, " (%.0f %%)",
                100.0 * static_cast<double>(used) / total_or_one);
  return Count(used) + " of " + Count(total) + " " + std::string(unit) + percent;
}

// The fraction of prompt tokens whose KV was found, and of those loaded from the host.
std::string HitRate(const CacheStats& cache) {
  const double queried = static_cast<double>(std::max<int64_t>(cache.queried_tokens, 1));
  char text[64];
  std::snprintf(text, sizeof text, "%.0f %% of tokens, %.0f %% from the host",
                100.0 * static_cast<double>(cache.device_tokens + cache.host_tokens) / queried,
                100.0 * static_cast<double>(cache.host_tokens) / queried);
  return text;
}

const char* Words(SessionState state) {
  switch (state) {
    case SessionState::kActive: return "active";
    case SessionState::kResidentIdle: return "idle on the device";
    case SessionState::kOffloading: return "being offloaded";
    case SessionState::kHost: return "on the host";
    case SessionState::kRestoring: return "being restored";
    case SessionState::kDropped: return "without KV";
    case SessionState::kClosed: break;
  }
  return "closed";
}

std::string SessionRows(const CacheStats& cache) {
  std::string rows = Row("Sessions", Count(int64_t{cache.sessions}));
  for (size_t i = 0; i < cache.sessions_by_state.size(); ++i) {
    if (cache.sessions_by_state[i] == 0) continue;
    rows += Row(std::string("of them ") + Words(static_cast<SessionState>(i)),
                Count(int64_t{cache.sessions_by_state[i]}));
  }
  return rows + Row("Tokens in sessions", Count(int64_t{cache.session_tokens}));
}

std::string RequestRows(const StatusFacts& facts) {
  const EngineStats& engine = facts.engine;
  return Row("Running", Count(int64_t{engine.load.running})) +
         Row("Waiting", Count(int64_t{engine.load.waiting})) +
         Row("Waiting prompts", Count(engine.load.waiting_tokens) + " tokens") +
         Row("Open streams", Count(int64_t{facts.open_streams})) +
         Row("Preemptions since start", Count(engine.preemptions));
}

std::string CacheRows(const EngineStats& engine) {
  const SchedulerLoad& load = engine.load;
  const CacheStats& cache = engine.cache;
  return Row("On the device",
             Use(load.total_blocks - load.free_blocks, load.total_blocks, "blocks")) +
         Row("On the host", cache.host_pages == 0
                                ? "none"
                                : Use(cache.host_pages_used, cache.host_pages, "pages")) +
         (cache.host_pages_ready == cache.host_pages
              ? ""
              : Row("Host memory ready", Use(cache.host_pages_ready, cache.host_pages, "pages"))) +
         Row("Prompts found", HitRate(cache));
}

std::string WorkRows(const EngineStats& engine) {
  char last[64];
  std::snprintf(last, sizeof last, "%lld tokens in %.1f ms",
                static_cast<long long>(engine.last_step_tokens),
                static_cast<double>(engine.last_step_ns) * 1e-6);
  return Row("Steps", Count(engine.steps)) + Row("Last step", last) +
         Row("Prompt tokens", Count(engine.prompt_tokens)) +
         Row("Generated tokens", Count(engine.generated_tokens)) +
         Row("Worker restarts", Count(engine.recoveries));
}

}  // namespace

std::string StatusPage(const StatusFacts& facts) {
  std::string server = Row("Model", facts.model) + Row("Device", facts.device) +
                       Row("gRPC address", facts.address) +
                       Row("Uptime", Duration(facts.uptime_seconds));
  if (!facts.engine.fault.empty()) server += Row("Fault", facts.engine.fault);
  std::string page(kHead);
  page += "<h1>Quire is " + Escaped(facts.state) + "</h1>";
  page += Section("Server", server);
  page += Section("Requests", RequestRows(facts));
  page += Section("KV cache", CacheRows(facts.engine));
  page += Section("Sessions", SessionRows(facts.engine.cache));
  page += Section("Since start", WorkRows(facts.engine));
  page +=
      "<p><a href=\"/metrics\">metrics</a><a href=\"/health\">health</a>"
      "<a href=\"/livez\">livez</a><a href=\"/readyz\">readyz</a>"
      "<a href=\"/startupz\">startupz</a><a href=\"/version\">version</a></p></body></html>\n";
  return page;
}

}  // namespace quire
