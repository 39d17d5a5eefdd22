// OutputLines: copies a worker's stdout and stderr into our log, line by line.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/log.h"

namespace quire {

class OutputLines {
 public:
  OutputLines(int32_t rank, pid_t pid) : rank_(rank), pid_(pid) {}

  // Logs the whole lines that a non-blocking descriptor has by now; false at its end.
  bool ReadFrom(int fd);
  // The last line, shortened, even if it has no end: often the reason why the worker ended. Empty
  // if there was none.
  std::string_view last() const { return last_; }

 private:
  void Append(std::string_view text);
  void EndLine();

  const int32_t rank_;
  const pid_t pid_;
  std::string line_;
  std::string last_;
};

// The severity of a line in our log's text format; kWarning for any other line.
Severity SeverityOfLine(std::string_view line);

}  // namespace quire
