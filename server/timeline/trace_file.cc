// Each track is a thread of a process in the format's terms: tracks of one kind share a process.
#include "server/timeline/trace_file.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace quire {
namespace {

using Track = Timeline::Track;

// The process and thread of a track, with the names that viewers show and their order.
struct Place {
  int process = 0;
  int thread = 0;
  std::string process_name, thread_name;
};

Place PlaceOf(Track track, int lane) {
  const std::string number = std::to_string(lane);
  switch (track) {
    case Track::kRequests: return {1, 1, "requests", "requests"};
    case Track::kScheduler: return {2, 1, "server", "scheduler"};
    case Track::kText: return {2, 1000 + lane, "server", "text " + number};
    case Track::kOutput: return {2, 2000 + lane, "server", "output " + number};
    case Track::kStores: return {3, 1, "copies of KV", "device to host"};
    case Track::kLoads: return {3, 2, "copies of KV", "host to device"};
    case Track::kRankHost: return {10 + lane, 1, "rank " + number, "host"};
    case Track::kRankDevice: return {10 + lane, 2, "rank " + number, "device"};
  }
  return {};
}

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void AppendName(const char* what, int process, int thread, const std::string& name,
                std::string* out) {
  *out += "{\"ph\":\"M\",\"name\":\"" + std::string(what) +
          "\",\"pid\":" + std::to_string(process) + ",\"tid\":" + std::to_string(thread) +
          ",\"args\":{\"name\":" + Quoted(name) + "}},\n";
}

void AppendMicroseconds(const char* key, int64_t ns, std::string* out) {
  char text[64];
  std::snprintf(text, sizeof text, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000,
                static_cast<int>(ns % 1000));
  *out += text;
}

void AppendArgs(const Timeline::Event& event, std::string* out) {
  *out += ",\"args\":{";
  const char* comma = "";
  if (!event.label.empty()) {
    *out += "\"id\":" + Quoted(event.label);
    comma = ",";
  }
  for (const Timeline::Arg& arg : event.args) {
    if (arg.name == nullptr) break;
    *out += std::string(comma) + "\"" + arg.name + "\":" + std::to_string(arg.value);
    comma = ",";
  }
  *out += "}}";
}

// Spans of requests overlap, so they are pairs of asynchronous events, joined by category and id.
void AppendEvent(const Timeline::Event& event, int64_t begin_ns, std::string* out) {
  const Place place = PlaceOf(event.track, event.lane);
  const std::string name = std::string("\"name\":\"") + event.name +
                           "\",\"pid\":" + std::to_string(place.process) +
                           ",\"tid\":" + std::to_string(place.thread);
  const int64_t from_ns = std::max<int64_t>(event.begin_ns - begin_ns, 0);
  const int64_t to_ns = std::max(event.end_ns - begin_ns, from_ns);
  if (event.track != Track::kRequests) {
    *out += "{\"ph\":\"X\"," + name;
    AppendMicroseconds("ts", from_ns, out);
    AppendMicroseconds("dur", to_ns - from_ns, out);
    return AppendArgs(event, out);
  }
  const std::string both = name + ",\"cat\":\"request\",\"id\":" + Quoted(event.label);
  *out += "{\"ph\":\"b\"," + both;
  AppendMicroseconds("ts", from_ns, out);
  AppendArgs(event, out);
  *out += ",\n{\"ph\":\"e\"," + both;
  AppendMicroseconds("ts", to_ns, out);
  *out += "}";
}

}  // namespace

TraceFile::TraceFile(Timeline::Recording recording, int64_t begin_ns, std::string about)
    : recording_(std::move(recording)), begin_ns_(begin_ns), about_(std::move(about)) {}

void TraceFile::AppendHead(std::string* out) const {
  *out += "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"about\":" + Quoted(about_) +
          ",\"dropped_events\":" + std::to_string(recording_.dropped) + "},\n\"traceEvents\":[\n";
  std::set<std::pair<Track, int32_t>> lines;
  for (const Timeline::Event& event : recording_.events) lines.insert({event.track, event.lane});
  for (const auto& [track, lane] : lines) {
    const Place place = PlaceOf(track, lane);
    AppendName("process_name", place.process, place.thread, place.process_name, out);
    AppendName("thread_name", place.process, place.thread, place.thread_name, out);
    *out +=
        "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":" + std::to_string(place.process) +
        ",\"args\":{\"sort_index\":" + std::to_string(place.process) + "}},\n";
  }
  // Last and always there, so that a comma precedes every event.
  *out +=
      "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":2,\"args\":{\"labels\":" + Quoted(about_) +
      "}}";
}

bool TraceFile::Next(size_t bytes, std::string* out) {
  if (ended_) return false;
  const size_t before = out->size();
  if (!std::exchange(begun_, true)) AppendHead(out);
  while (next_ < recording_.events.size() && out->size() - before < bytes) {
    *out += ",\n";
    AppendEvent(recording_.events[next_++], begin_ns_, out);
  }
  if (next_ == recording_.events.size()) {
    *out += "\n]}\n";
    ended_ = true;
  }
  return true;
}

}  // namespace quire
