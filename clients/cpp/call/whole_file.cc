// A partial file has the suffix .partial.
#include "clients/cpp/call/whole_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace quire::cli {

namespace fs = std::filesystem;

WholeFile::WholeFile(const std::string& path) : path_(path) {
  std::error_code error;
  const bool special = fs::exists(path, error) && !fs::is_regular_file(path, error);
  written_ = special ? path : path + ".partial";
  out_.open(written_, std::ios::binary);
}

WholeFile::~WholeFile() {
  std::error_code error;
  if (!kept_ && written_ != path_) fs::remove(written_, error);
}

bool WholeFile::Keep() {
  out_.close();
  if (!out_) return false;
  std::error_code error;
  if (written_ != path_) fs::rename(written_, path_, error);
  kept_ = !error;
  return kept_;
}

std::string CannotWrite(const std::string& path) {
  return "cannot write " + path + ": " + std::strerror(errno);
}

}  // namespace quire::cli
