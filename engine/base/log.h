// Log: structured logs to stderr, one event a line, as text or JSON. An event is a constant
// sentence and typed fields. Fields take numbers, booleans and short strings that the operator
// chose (paths, names, ids); by design no call formats prompt text or a secret.
//
//   Log(Severity::kInfo, "model loaded", {{"path", dir}, {"seconds", 0.41}});
//
// Any thread. A background thread writes the lines from a bounded queue; when the queue is full,
// events are dropped and counted (LogDroppedTotal) and the caller does not wait. The last warnings
// and errors stay in memory for the status page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace quire {

enum class Severity : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

struct LogField {
  std::string_view name;
  std::variant<bool, int64_t, double, std::string> value;

  LogField(std::string_view n, bool v) : name(n), value(v) {}
  LogField(std::string_view n, int v) : name(n), value(int64_t{v}) {}
  LogField(std::string_view n, long v) : name(n), value(int64_t{v}) {}
  LogField(std::string_view n, long long v) : name(n), value(static_cast<int64_t>(v)) {}
  LogField(std::string_view n, unsigned long v) : name(n), value(static_cast<int64_t>(v)) {}
  LogField(std::string_view n, double v) : name(n), value(v) {}
  LogField(std::string_view n, std::string v) : name(n), value(std::move(v)) {}
  LogField(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
};

// Starts the writer thread; before it, and after StopLog, events are written synchronously.
void StartLog(LogFormat format, Severity minimum, int fd = 2);
void StopLog();  // flushes; gives up after 3 s without a reader
void Log(Severity severity, std::string_view event, std::initializer_list<LogField> fields = {});
uint64_t LogDroppedTotal();

// A line of the log in text form, in parts.
struct LoggedProblem {
  std::string time;  // "2026-11-20T17:01:53.798Z"
  Severity severity = Severity::kWarning;
  std::string text;  // the event and its fields
};
inline constexpr size_t kMaxLoggedProblems = 50;
// The last warnings and errors that the minimum let through, the newest first; written or dropped.
std::vector<LoggedProblem> LastProblems();

}  // namespace quire
