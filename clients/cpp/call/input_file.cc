// A directory opens as a file does, and then gives no byte: it is refused.
#include "clients/cpp/call/input_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "clients/cpp/call/report.h"

namespace quire::cli {

std::istream* InputFile::Open(const std::string& path, Terminal& terminal) {
  if (path == "-") return &terminal.in;
  file_.open(path, std::ios::binary);
  if (file_ && !std::filesystem::is_directory(path)) return &file_;
  ReportLocal("cannot read " + path + ": " + std::strerror(file_ ? EISDIR : errno), terminal.err);
  return nullptr;
}

}  // namespace quire::cli
