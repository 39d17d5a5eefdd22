// Cutting a stream into lines of bounded length.
#include "engine/worker/process/output_lines.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace quire {
namespace {

constexpr size_t kMaxLineBytes = 500;  // the longest text in the log
// Of one call, so that a worker that writes without end cannot block the reader's other work.
constexpr int kMaxReads = 16;

}  // namespace

Severity SeverityOfLine(std::string_view line) {
  // "2026-01-31T12:00:00.000Z INFO event ..."
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line[0] < '0' || line[0] > '9' || line[space - 1] != 'Z') {
    return Severity::kWarning;
  }
  const std::string_view rest = line.substr(space + 1);
  if (rest.starts_with("DEBUG ")) return Severity::kDebug;
  if (rest.starts_with("INFO ")) return Severity::kInfo;
  return rest.starts_with("ERROR ") ? Severity::kError : Severity::kWarning;
}

bool OutputLines::ReadFrom(int fd) {
  std::array<char, 4096> piece;
  for (int i = 0; i < kMaxReads; ++i) {
    const ssize_t got = read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return true;  // nothing more for now
    if (got == 0) {
      if (!line_.empty()) EndLine();
      return false;
    }
    Append({piece.data(), static_cast<size_t>(got)});
  }
  return true;
}

void OutputLines::Append(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    line_ += text.substr(0, std::min(end, kMaxLineBytes - std::min(line_.size(), kMaxLineBytes)));
    if (end == text.size()) return;
    EndLine();
    text.remove_prefix(end + 1);
  }
}

void OutputLines::EndLine() {
  Log(SeverityOfLine(line_), "worker says",
      {{"rank", rank_}, {"pid", static_cast<int>(pid_)}, {"line", line_}});
  last_.swap(line_);
  line_.clear();
}

}  // namespace quire
