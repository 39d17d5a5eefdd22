// Test strings generated from recipe.json by seed, equal to those of make_tokenizers.py.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quire {

// splitmix64; the remainder is even enough here and the same in every language.
class RecipeRandom {
 public:
  explicit RecipeRandom(uint64_t seed) : state_(seed) {}
  uint64_t Below(uint64_t n) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
  }
  template <class T>
  const T& Pick(const std::vector<T>& items) {
    return items[Below(items.size())];
  }

 private:
  uint64_t state_;
};

class StringRecipe {
 public:
  // Reads tests/testdata/tokenizers/recipe.json, and takes the members that the file `changes`
  // under tests/testdata has instead of its own; aborts on an error.
  static StringRecipe Read(const std::string& changes = "");
  std::string Make(RecipeRandom* random) const { return Make(random, random->Below(12)); }

 private:
  std::string Make(RecipeRandom* random, uint64_t kind) const;
  void AddCodePoints(RecipeRandom* random, std::string* out) const;
  void AddSpecials(RecipeRandom* random, std::string* out) const;

  using List = std::vector<std::string>;
  List words_, separators_, marks_, bases_, runs_, specials_;
  List soups_[4];  // spaces, digits, quotes, code
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

}  // namespace quire
