// CodeSet: a set of Unicode code points, and the byte sequences that write them in UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace quire {

// Code points from `first` to `last`, both included.
struct CodeRange {
  char32_t first, last;
  bool operator==(const CodeRange&) const = default;
};

// One to four bytes, each within its range: what a block of code points looks like in UTF-8.
struct ByteSequence {
  struct Range {
    uint8_t first, last;
  };
  std::array<Range, 4> bytes;
  int size = 0;
};

// Surrogates are no members: no UTF-8 text holds them.
class CodeSet {
 public:
  CodeSet() = default;
  CodeSet(std::initializer_list<CodeRange> ranges);

  void Add(CodeRange range);
  void Add(const CodeSet& other);
  CodeSet Complement() const;
  CodeSet Without(const CodeSet& other) const;
  bool Contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  // Ascending, apart from each other.
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  // Together they write exactly the members.
  std::vector<ByteSequence> Sequences() const;

 private:
  std::vector<CodeRange> ranges_;
};

}  // namespace quire
