// Text to rules, without memory of its own: the program under test may be out of it.
#include "tests/faults/fault_schedule.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

namespace quire::faults {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 21> kEffects = {{
    {"EIO", EIO},
    {"ENOSPC", ENOSPC},
    {"EINTR", EINTR},
    {"EMFILE", EMFILE},
    {"ENFILE", ENFILE},
    {"ENOMEM", ENOMEM},
    {"EAGAIN", EAGAIN},
    {"EACCES", EACCES},
    {"ENOBUFS", ENOBUFS},
    {"ECONNABORTED", ECONNABORTED},
    {"ECONNRESET", ECONNRESET},
    {"EPIPE", EPIPE},
    {"EDQUOT", EDQUOT},
    {"EROFS", EROFS},
    {"EADDRINUSE", EADDRINUSE},
    {"EADDRNOTAVAIL", EADDRNOTAVAIL},
    {"EINVAL", EINVAL},
    {"EPERM", EPERM},
    {"EWOULDBLOCK", EWOULDBLOCK},
    {"short", Rule::kShort},
    {"empty", Rule::kEmpty},
}};

// Cuts the part before `separator` off.
std::string_view Cut(std::string_view& text, char separator) {
  const size_t at = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

template <typename Number>
bool Read(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

bool ReadEffect(std::string_view word, Rule* rule) {
  if (word.starts_with("jump=")) {
    int64_t seconds = 0;
    rule->effect = Rule::kJump;
    if (!Read(word.substr(5), &seconds)) return false;
    rule->jump_ns = seconds * 1'000'000'000;
    return true;
  }
  for (const auto& [name, effect] : kEffects) {
    if (name == word) rule->effect = effect;
  }
  return rule->effect != 0;
}

bool ReadKey(std::string_view word, Rule* rule) {
  const std::string_view key = Cut(word, '=');
  if (key == "path") rule->path = word;
  if (key == "program") rule->program = word;
  if (key == "clock") rule->clock = word;
  if (key == "path" || key == "program" || key == "clock") return !word.empty();
  if (key == "from") return Read(word, &rule->from);
  if (key == "count") return Read(word, &rule->count);
  if (key == "one_in") return Read(word, &rule->one_in) && rule->one_in > 0;
  if (key == "seed") return Read(word, &rule->seed);
  if (key == "size") return Read(word, &rule->size);
  return false;
}

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

bool Rule::Names(std::string_view call) const {
  for (std::string_view rest = calls; !rest.empty();) {
    if (Cut(rest, ',') == call) return true;
  }
  return false;
}

bool FaultSchedule::Parse(std::string_view text) {
  size_ = 0;
  while (!text.empty()) {
    std::string_view line = Cut(text, '\n');
    if (line.empty()) continue;
    if (size_ == kMaxRules) return false;
    Rule& rule = rules_[size_];
    rule = {};
    rule.calls = Cut(line, ' ');
    if (!ReadEffect(Cut(line, ' '), &rule)) return false;
    while (!line.empty()) {
      if (!ReadKey(Cut(line, ' '), &rule)) return false;
    }
    ++size_;
  }
  return true;
}

bool FaultSchedule::Fails(const Rule& rule, uint64_t n, uint64_t faults) {
  if (n < rule.from || faults >= rule.count) return false;
  return rule.one_in <= 1 || Mix(rule.seed * 0x9E3779B97F4A7C15u + n) % rule.one_in == 0;
}

}  // namespace quire::faults
