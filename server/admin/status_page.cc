// A table of facts in a page that fits a phone.
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
    "table{width:100%;border-collapse:collapse}td{padding:.3rem 0;border-bottom:1px solid #ddd}"
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

std::string Duration(double seconds) {
  const auto whole = static_cast<long long>(seconds);
  char text[64];
  std::snprintf(text, sizeof text, "%lld d %02lld:%02lld:%02lld", whole / 86400, whole / 3600 % 24,
                whole / 60 % 60, whole % 60);
  return text;
}

std::string KvUse(const SchedulerLoad& load) {
  const int32_t used = load.total_blocks - load.free_blocks;
  const double share = load.total_blocks == 0 ? 0 : 100.0 * used / load.total_blocks;
  char text[64];
  std::snprintf(text, sizeof text, "%d of %d blocks (%.0f %%)", used, load.total_blocks, share);
  return text;
}

std::string HostUse(const CacheStats& cache) {
  if (cache.host_pages == 0) return "none";
  char text[64];
  std::snprintf(text, sizeof text, "%d of %d pages (%.0f %%)", cache.host_pages_used,
                cache.host_pages, 100.0 * cache.host_pages_used / cache.host_pages);
  return text;
}

// Of the prompts' tokens, and how many of them had to come from the host.
std::string HitRate(const CacheStats& cache) {
  const double queried = static_cast<double>(std::max<int64_t>(cache.queried_tokens, 1));
  char text[64];
  std::snprintf(text, sizeof text, "%.0f %%, %.0f %% from the host",
                100.0 * static_cast<double>(cache.device_tokens + cache.host_tokens) / queried,
                100.0 * static_cast<double>(cache.host_tokens) / queried);
  return text;
}

std::string SessionsText(const CacheStats& cache) {
  std::string states;
  for (size_t i = 0; i < cache.sessions_by_state.size(); ++i) {
    if (cache.sessions_by_state[i] == 0) continue;
    states += (states.empty() ? " (" : ", ") + std::to_string(cache.sessions_by_state[i]) + " " +
              Name(static_cast<SessionState>(i));
  }
  return std::to_string(cache.sessions) + (states.empty() ? "" : states + ")");
}

}  // namespace

std::string StatusPage(const StatusFacts& facts) {
  const SchedulerLoad& load = facts.engine.load;
  std::string page(kHead);
  page += "<h1>Quire is " + Escaped(facts.state) + "</h1><table>";
  page += Row("Model", facts.model);
  page += Row("Device", facts.device);
  page += Row("gRPC", facts.address);
  page += Row("Up", Duration(facts.uptime_seconds));
  page += Row("Streams open", std::to_string(facts.open_streams));
  page += Row("Requests running", std::to_string(load.running));
  page += Row("Requests waiting", std::to_string(load.waiting));
  page += Row("KV cache", KvUse(load));
  page += Row("Host memory for KV", HostUse(facts.engine.cache));
  page += Row("Prompt tokens found", HitRate(facts.engine.cache));
  page += Row("Sessions", SessionsText(facts.engine.cache));
  page += Row("Steps", std::to_string(facts.engine.steps));
  page += Row("Prompt tokens", std::to_string(facts.engine.prompt_tokens));
  page += Row("Generated tokens", std::to_string(facts.engine.generated_tokens));
  page += Row("Preemptions", std::to_string(facts.engine.preemptions));
  if (!facts.engine.fault.empty()) page += Row("Fault", facts.engine.fault);
  page +=
      "</table><p><a href=\"/metrics\">metrics</a><a href=\"/livez\">livez</a>"
      "<a href=\"/readyz\">readyz</a><a href=\"/startupz\">startupz</a></p></body></html>\n";
  return page;
}

}  // namespace quire
