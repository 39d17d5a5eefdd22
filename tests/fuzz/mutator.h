// Mutator: inputs for a parser, from real ones by small edits. The same seed gives the same inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz_seed.h"

namespace quire {

class Mutator {
 public:
  // `seeds` are real inputs; `words` are pieces that mean something to the parser. Neither is
  // empty.
  Mutator(std::vector<std::string> seeds, std::vector<std::string> words, uint32_t seed)
      : seeds_(std::move(seeds)), words_(std::move(words)), random_(FuzzSeed(seed)) {}

  // A seed with one to four edits.
  std::string Next() {
    std::string input = Pick(seeds_);
    for (size_t edits = 1 + Below(4); edits > 0; --edits) Edit(&input);
    return input;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }
  const std::string& Pick(const std::vector<std::string>& list) { return list[Below(list.size())]; }
  void Edit(std::string* input) {
    const size_t at = Below(input->size() + 1);
    switch (Below(6)) {
      case 0: input->insert(at, Pick(words_)); break;
      case 1: input->erase(at, 1 + Below(8)); break;
      case 2:
        if (at < input->size()) (*input)[at] = static_cast<char>(Below(256));
        break;
      case 3: input->insert(at, input->substr(Below(input->size() + 1), 1 + Below(60))); break;
      case 4: input->replace(at, Pick(words_).size(), Pick(words_)); break;
      default: {
        const std::string& other = Pick(seeds_);
        input->insert(at, other.substr(Below(other.size() + 1), 1 + Below(80)));
      }
    }
  }

  const std::vector<std::string> seeds_, words_;
  std::mt19937 random_;
};

}  // namespace quire
