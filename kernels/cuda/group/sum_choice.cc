// The text form and the file.
#include "kernels/cuda/group/sum_choice.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <vector>

namespace quire::cuda {
namespace {

constexpr std::string_view kLetters = "?12N";  // by SumMethod

}  // namespace

bool SumChoice::Parse(const std::string& text, SumChoice* choice) {
  if (text.size() != kSizes.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t method = kLetters.find(text[i]);
    if (method == std::string_view::npos || method == 0) return false;
    choice->of_size_[i] = static_cast<SumMethod>(method);
  }
  return true;
}

std::string SumChoice::Text() const {
  std::string text;
  for (const SumMethod method : of_size_) text += kLetters[static_cast<size_t>(method)];
  return text;
}

SumMethod SumChoice::For(int64_t bytes) const {
  size_t i = 0;
  while (i + 1 < kSizes.size() && kSizes[i] < bytes) ++i;
  return of_size_[i];
}

std::string SumChoice::Load(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + '\t')) return line.substr(name.size() + 1);
  }
  return "";
}

bool SumChoice::Save(const std::string& file, const std::string& name, const std::string& text) {
  std::vector<std::string> lines;
  {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with(name + '\t')) lines.push_back(line);
    }
  }
  lines.push_back(name + '\t' + text);
  const std::string fresh = file + "." + std::to_string(getpid());
  std::ofstream out(fresh, std::ios::trunc);
  for (const std::string& line : lines) out << line << '\n';
  out.close();
  return out.good() && std::rename(fresh.c_str(), file.c_str()) == 0;
}

}  // namespace quire::cuda
