// WholeFile: a file that appears under its name only when it is complete.
#pragma once

#include <fstream>
#include <string>

namespace quire::cli {

// Written beside its final name and renamed in Keep; removed if Keep is not called. A pipe or a
// device is written in place.
class WholeFile {
 public:
  explicit WholeFile(const std::string& path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  std::ostream& out() { return out_; }
  // False if the file could not be written or renamed; errno says why.
  bool Keep();

 private:
  const std::string path_;
  std::string written_;
  std::ofstream out_;
  bool kept_ = false;
};

// "cannot write FILE: No space left on device", by errno.
std::string CannotWrite(const std::string& path);

}  // namespace quire::cli
