// The file has a line with the format, a line with the machine, a line for each choice, and a last
// line with their number and the XXH3-64 of everything before it.
#include "kernels/cuda/matmul/algorithm_table.h"

#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace quire::cuda {
namespace {

constexpr char kFormat[] = "quire matrix product algorithms, format 6";

std::string LineOf(const ProductShape& s, const Choice& choice) {
  char text[320];
  int length =
      std::snprintf(text, sizeof text, "%d %d %d %d %d %d %d %d %d %d %d %d %d %.3f", s.tokens, s.n,
                    s.k, static_cast<int>(s.in), static_cast<int>(s.out), s.bias, s.block_scales,
                    s.x_alignment, s.w_alignment, s.out_alignment, choice.cut.rows,
                    choice.cut.tokens, choice.cut.split, choice.microseconds);
  for (uint64_t word : choice.algorithm) {
    length += std::snprintf(text + length, sizeof text - static_cast<size_t>(length),
                            " %016" PRIx64, word);
  }
  return std::string(text, static_cast<size_t>(length)) + "\n";
}

bool Read(const std::string& line, ProductShape* s, Choice* choice) {
  std::istringstream in(line);
  int in_type = 0, out_type = 0, bias = 0, block_scales = 0, x = 0, w = 0, out = 0;
  in >> s->tokens >> s->n >> s->k >> in_type >> out_type >> bias >> block_scales >> x >> w >> out;
  in >> choice->cut.rows >> choice->cut.tokens >> choice->cut.split;
  in >> choice->microseconds >> std::hex;
  for (uint64_t& word : choice->algorithm) in >> word;
  s->in = static_cast<DType>(in_type);
  s->out = static_cast<DType>(out_type);
  s->bias = bias != 0;
  s->block_scales = block_scales != 0;
  s->x_alignment = static_cast<uint8_t>(x);
  s->w_alignment = static_cast<uint8_t>(w);
  s->out_alignment = static_cast<uint8_t>(out);
  return !in.fail() && choice->microseconds > 0;
}

std::string LastLine(const std::string& text, size_t count) {
  char line[64];
  std::snprintf(line, sizeof line, "end %zu %016" PRIx64 "\n", count,
                static_cast<uint64_t>(XXH3_64bits(text.data(), text.size())));
  return line;
}

}  // namespace

size_t ProductShapeHash::operator()(const ProductShape& s) const {
  const uint64_t types =
      static_cast<uint64_t>(s.in) | static_cast<uint64_t>(s.out) << 4 |
      static_cast<uint64_t>(s.bias) << 8 | static_cast<uint64_t>(s.block_scales) << 9 |
      static_cast<uint64_t>(s.x_alignment) << 16 | static_cast<uint64_t>(s.w_alignment) << 24 |
      static_cast<uint64_t>(s.out_alignment) << 32;
  uint64_t hash = types;
  for (int32_t x : {s.tokens, s.n, s.k}) {
    hash = (hash ^ static_cast<uint32_t>(x)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

const Choice* AlgorithmTable::Find(const ProductShape& shape) const {
  const auto it = choices_.find(shape);
  return it == choices_.end() ? nullptr : &it->second;
}

void AlgorithmTable::Put(const ProductShape& shape, const Choice& choice) {
  choices_[shape] = choice;
  if (choice.microseconds > 0) changed_ = true;
}

bool AlgorithmTable::Load(const std::string& path, std::string* why) {
  why->clear();
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    if (errno != ENOENT) *why = std::strerror(errno);
    return false;
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kFormat) {
    *why = "not a file of matrix product algorithms";
    return false;
  }
  if (!std::getline(lines, line) || line != machine_) {
    *why = "it was written for another machine or library: " + line.substr(0, 200);
    return false;
  }
  std::vector<std::pair<ProductShape, Choice>> read;
  while (std::getline(lines, line) && !line.starts_with("end ")) {
    auto& [shape, choice] = read.emplace_back();
    if (!Read(line, &shape, &choice)) break;
  }
  const size_t end = text.rfind("end ");
  if (end == std::string::npos || text.substr(end) != LastLine(text.substr(0, end), read.size())) {
    *why = "it is damaged";
    return false;
  }
  for (const auto& [shape, choice] : read) choices_[shape] = choice;
  return true;
}

std::string AlgorithmTable::Text() const {
  std::vector<std::string> lines;
  for (const auto& [shape, choice] : choices_) {
    if (choice.microseconds > 0) lines.push_back(LineOf(shape, choice));
  }
  std::sort(lines.begin(), lines.end());
  std::string text = std::string(kFormat) + "\n" + machine_ + "\n";
  for (const std::string& line : lines) text += line;
  return text + LastLine(text, lines.size());
}

bool AlgorithmTable::Save(const std::string& path, std::string* why) {
  // Ranks of one machine may save at once, so each writes its own file and renames it.
  const std::string draft = path + "." + std::to_string(getpid());
  std::ofstream out(draft, std::ios::binary | std::ios::trunc);
  out << Text();
  out.close();
  if (!out || std::rename(draft.c_str(), path.c_str()) != 0) {
    *why = std::strerror(errno);
    std::remove(draft.c_str());
    return false;
  }
  changed_ = false;
  return true;
}

}  // namespace quire::cuda
