// The log's formatter and its writer thread: a bounded queue of finished lines before one file
// descriptor, which may be slow, full or closed.
#include "engine/base/log.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>

#include "nlohmann/json.hpp"

namespace quire {
namespace {

// 4096 lines of at most 4000 bytes: 16 MB in the worst case, some 400 KB in practice.
constexpr size_t kMaxQueuedLines = 4096;
// Below PIPE_BUF (4096): when poll reports a pipe as writable, a line of this length does not
// block.
constexpr size_t kMaxLineBytes = 4000;
constexpr size_t kMaxTextBytes = 512;
// Longest wait of a line for its reader; then it is dropped.
constexpr int kWriteTimeoutMs = 1000;

struct LogState {
  std::atomic<Severity> minimum{Severity::kInfo};
  std::atomic<uint64_t> dropped{0};
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::deque<std::string> queue;
  std::deque<LoggedProblem> problems;  // the newest first
  LogFormat format = LogFormat::kText;
  int fd = STDERR_FILENO;
  bool running = false;   // a writer thread takes from the queue
  bool stopping = false;  // it ends once the queue is empty
};

// Never destroyed: threads may log while the process exits.
LogState& State() {
  static LogState* const state = new LogState;
  return *state;
}

const char* SeverityName(Severity severity) {
  static constexpr std::array<const char*, 4> kNames = {"DEBUG", "INFO", "WARNING", "ERROR"};
  return kNames[static_cast<size_t>(severity)];
}

std::string WallTime() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  char text[40];
  const size_t used = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + used, sizeof text - used, ".%03ldZ", now.tv_nsec / 1000000);
  return text;
}

// A JSON string, which escapes control characters (terminal escapes, line breaks) and broken UTF-8.
std::string Quoted(std::string_view text) {
  return nlohmann::json(text.substr(0, kMaxTextBytes))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsPlain(std::string_view text) {
  if (text.empty() || text.size() > kMaxTextBytes) return false;
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == '"' || c == '=' || c == '\\') return false;
  }
  return true;
}

std::string FormatValue(const LogField& field, LogFormat format) {
  if (const bool* flag = std::get_if<bool>(&field.value)) return *flag ? "true" : "false";
  if (const int64_t* whole = std::get_if<int64_t>(&field.value)) return std::to_string(*whole);
  if (const double* number = std::get_if<double>(&field.value)) {
    if (!std::isfinite(*number)) return "null";
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", *number);
    return text;
  }
  const std::string& text = std::get<std::string>(field.value);
  return format == LogFormat::kText && IsPlain(text) ? text : Quoted(text);
}

// Appends whole fields only, so that a long line is still valid JSON.
void AppendFields(LogFormat format, std::initializer_list<LogField> fields, std::string* line) {
  const bool json = format == LogFormat::kJson;
  for (const LogField& field : fields) {
    const std::string value = FormatValue(field, format);
    if (line->size() + field.name.size() + value.size() + 8 > kMaxLineBytes) break;
    *line += json ? "," + Quoted(field.name) + ":" : " " + std::string(field.name) + "=";
    *line += value;
  }
}

std::string FormatLine(LogFormat format, Severity severity, std::string_view event,
                       std::initializer_list<LogField> fields) {
  const bool json = format == LogFormat::kJson;
  std::string line;
  if (json) {
    line = "{\"time\":\"" + WallTime() + "\",\"severity\":\"" + SeverityName(severity) +
           "\",\"event\":" + Quoted(event);
  } else {
    line = WallTime() + ' ' + SeverityName(severity) + ' ';
    line += event;
  }
  AppendFields(format, fields, &line);
  line += json ? "}\n" : "\n";
  return line;
}

void KeepProblem(LogState& state, Severity severity, std::string_view event,
                 std::initializer_list<LogField> fields) {
  LoggedProblem problem{.time = WallTime(), .severity = severity, .text = std::string(event)};
  AppendFields(LogFormat::kText, fields, &problem.text);
  const std::lock_guard lock(state.mutex);
  if (state.problems.size() >= kMaxLoggedProblems) state.problems.pop_back();
  state.problems.push_front(std::move(problem));
}

// False when the line was not written whole in time.
bool WriteLine(int fd, std::string_view line, int timeout_ms) {
  while (!line.empty()) {
    pollfd ready{fd, POLLOUT, 0};
    const int polled = poll(&ready, 1, timeout_ms);
    if (polled == 0) return false;
    if (polled < 0 && errno != EINTR) return false;
    if (polled < 0) continue;
    const ssize_t written = write(fd, line.data(), line.size());
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) line.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void Drop(LogState& state, uint64_t lines) {
  state.dropped.fetch_add(lines, std::memory_order_relaxed);
}

// Writes one line; after dropped lines, first writes their number.
void Deliver(LogState& state, const std::string& line, int timeout_ms, uint64_t* reported_drops) {
  const uint64_t drops = state.dropped.load(std::memory_order_relaxed);
  if (drops != *reported_drops) {
    const int64_t lost = static_cast<int64_t>(drops - *reported_drops);
    // The leading newline ends a line that was cut off.
    const std::string note = "\n" + FormatLine(state.format, Severity::kWarning,
                                               "log events were dropped", {{"count", lost}});
    if (WriteLine(state.fd, note, timeout_ms)) *reported_drops = drops;
  }
  if (!WriteLine(state.fd, line, timeout_ms)) Drop(state, 1);
}

// `reported_drops`: the drops at StartLog; later ones are reported.
void WriterLoop(LogState& state, uint64_t reported_drops) {
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return !state.queue.empty() || state.stopping; });
    if (state.queue.empty()) break;
    const std::string line = std::move(state.queue.front());
    state.queue.pop_front();
    // While stopping, a reader that stalled before gets no further time.
    const bool stalled = state.dropped.load(std::memory_order_relaxed) != reported_drops;
    const int timeout_ms = state.stopping && stalled ? 0 : kWriteTimeoutMs;
    lock.unlock();
    Deliver(state, line, timeout_ms, &reported_drops);
    lock.lock();
  }
  state.running = false;
  state.changed.notify_all();
}

}  // namespace

void StartLog(LogFormat format, Severity minimum, int fd) {
  LogState& state = State();
  state.minimum.store(minimum, std::memory_order_relaxed);
  const std::lock_guard lock(state.mutex);
  state.format = format;
  state.fd = fd;
  if (state.running) return;
  state.running = true;
  state.stopping = false;
  // Detached: a write that blocks for good must not keep the process from ending.
  const uint64_t drops = state.dropped.load(std::memory_order_relaxed);
  std::thread([&state, drops] { WriterLoop(state, drops); }).detach();
}

void StopLog() {
  LogState& state = State();
  std::unique_lock lock(state.mutex);
  state.stopping = true;
  state.changed.notify_all();
  state.changed.wait_for(lock, std::chrono::milliseconds(3 * kWriteTimeoutMs),
                         [&] { return !state.running; });
}

void Log(Severity severity, std::string_view event, std::initializer_list<LogField> fields) {
  LogState& state = State();
  if (severity < state.minimum.load(std::memory_order_relaxed)) return;
  if (severity >= Severity::kWarning) KeepProblem(state, severity, event, fields);
  std::unique_lock lock(state.mutex);
  const LogFormat format = state.format;
  const int fd = state.fd;
  const bool queued = state.running && !state.stopping;
  lock.unlock();
  std::string line = FormatLine(format, severity, event, fields);
  if (!queued) {
    if (!WriteLine(fd, line, kWriteTimeoutMs)) Drop(state, 1);
    return;
  }
  lock.lock();
  if (state.queue.size() >= kMaxQueuedLines) {
    Drop(state, 1);
    return;
  }
  state.queue.push_back(std::move(line));
  state.changed.notify_all();
}

std::vector<LoggedProblem> LastProblems() {
  LogState& state = State();
  const std::lock_guard lock(state.mutex);
  return {state.problems.begin(), state.problems.end()};
}

uint64_t LogDroppedTotal() { return State().dropped.load(std::memory_order_relaxed); }

}  // namespace quire
