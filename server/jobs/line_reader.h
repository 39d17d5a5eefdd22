// LineReader: the lines of a job's input, one after the other from its disk. Never more of the file
// is in memory than a line and a piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/session/archive/disk.h"

namespace quire {

// A line that is not blank.
struct InputLine {
  uint32_t number = 0;  // from 1, blank ones counted
  std::string text;     // without the line break; the begin of one that is too long
  bool too_long = false;
};

// Finds the lines in pieces of a file.
class LineSplitter {
 public:
  explicit LineSplitter(size_t max_line_bytes) : max_line_bytes_(max_line_bytes) {}

  // Takes bytes from the front of `bytes`, up to the end of a line: that line, or nullopt where it
  // is blank or goes on in the next piece.
  std::optional<InputLine> Take(std::string_view* bytes);
  // Behind the last byte: the line that no break ends.
  std::optional<InputLine> Finish();
  uint32_t number() const { return number_; }  // of lines that have begun

 private:
  std::optional<InputLine> EndLine();

  const size_t max_line_bytes_;
  std::string text_;
  bool begun_ = false;
  bool blank_ = true;
  bool too_long_ = false;
  uint32_t number_ = 0;
};

class LineReader {
 public:
  // `file` ends at `size`.
  LineReader(std::unique_ptr<DiskFile> file, int64_t size, size_t max_line_bytes);
  // The next line; nullopt behind the last one.
  absl::StatusOr<std::optional<InputLine>> Next();

 private:
  std::unique_ptr<DiskFile> file_;
  const int64_t size_;
  LineSplitter splitter_;
  int64_t read_ = 0;
  std::string piece_;
  size_t used_ = 0;  // of piece_
  bool ended_ = false;
};

}  // namespace quire
