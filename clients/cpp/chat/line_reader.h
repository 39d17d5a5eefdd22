// LineReader: the lines of a talk, from a stream or from a terminal with editing and history.
#pragma once

#include <istream>
#include <memory>
#include <string>

namespace quire::cli {

class LineReader {
 public:
  enum class Outcome { kLine, kInterrupted, kEnd };

  virtual ~LineReader() = default;
  // Blocks for the next line, without its end. kInterrupted: ctrl-C, the line is dropped.
  virtual Outcome Read(std::string* line) = 0;
};

// `in` outlives the reader.
std::unique_ptr<LineReader> ReadStream(std::istream& in);

// Reads this process's terminal with arrow keys and history; `prompt` goes to stderr. The last
// kHistoryLines lines are kept in `history_file`, with mode 0600; an empty path keeps none. Null
// when the terminal cannot be edited. One at a time, on one thread.
inline constexpr int kHistoryLines = 1000;
std::unique_ptr<LineReader> EditLines(const std::string& prompt, const std::string& history_file);

}  // namespace quire::cli
