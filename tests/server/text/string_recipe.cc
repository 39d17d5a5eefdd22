// The generator of make_tokenizers.py, step by step.
#include "tests/server/text/string_recipe.h"

#include "engine/base/json.h"
#include "kernels/check.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

void AddCodePoint(RecipeRandom* random, uint32_t first, uint32_t last, std::string* out) {
  const uint32_t c = first + static_cast<uint32_t>(random->Below(last - first + 1));
  const bool left_out = (c >= 0xD800 && c <= 0xDFFF) || (c >= 0x11DE0 && c <= 0x11DE9) ||
                        (c >= 0x16FF4 && c <= 0x16FF6);
  AppendUtf8(left_out ? '?' : c, out);
}

}  // namespace

StringRecipe StringRecipe::Read(const std::string& changes) {
  const std::string directory = QUIRE_SOURCE_DIR "/tests/testdata/";
  auto json = ReadJsonFile(directory + "tokenizers/recipe.json");
  CHECK(json.ok());
  if (!changes.empty()) {
    const auto changed = ReadJsonFile(directory + changes);
    CHECK(changed.ok());
    json->update(*changed);
  }
  StringRecipe recipe;
  recipe.words_ = (*json)["words"].get<List>();
  recipe.separators_ = (*json)["separators"].get<List>();
  recipe.marks_ = (*json)["marks"].get<List>();
  recipe.bases_ = (*json)["bases"].get<List>();
  recipe.runs_ = (*json)["runs"].get<List>();
  recipe.specials_ = (*json)["specials"].get<List>();
  const char* const soups[] = {"spaces", "digits", "quotes", "code"};
  for (int i = 0; i < 4; ++i) recipe.soups_[i] = (*json)[soups[i]].get<List>();
  recipe.ranges_ = (*json)["ranges"].get<std::vector<std::pair<uint32_t, uint32_t>>>();
  return recipe;
}

void StringRecipe::AddCodePoints(RecipeRandom* random, std::string* out) const {
  for (uint64_t i = 1 + random->Below(6); i > 0; --i) {
    const auto [first, last] = random->Pick(ranges_);
    for (uint64_t k = 1 + random->Below(8); k > 0; --k) AddCodePoint(random, first, last, out);
  }
}

void StringRecipe::AddSpecials(RecipeRandom* random, std::string* out) const {
  for (uint64_t i = 1 + random->Below(10); i > 0; --i) {
    *out += random->Pick(specials_);
    if (random->Below(2) != 0) *out += random->Pick(separators_);
    if (random->Below(2) != 0) *out += random->Pick(words_);
  }
}

std::string StringRecipe::Make(RecipeRandom* random, uint64_t kind) const {
  std::string out;
  switch (kind) {
    case 0:
      for (uint64_t i = 1 + random->Below(16); i > 0; --i) {
        out += random->Pick(words_);
        out += random->Pick(separators_);
      }
      break;
    case 1:
      for (uint64_t i = 1 + random->Below(20); i > 0; --i) AddCodePoint(random, 0, 0x10FFFF, &out);
      break;
    case 2: AddCodePoints(random, &out); break;
    case 3:
    case 4:
    case 5:
    case 6:
      for (uint64_t i = 1 + random->Below(24); i > 0; --i) out += random->Pick(soups_[kind - 3]);
      break;
    case 7:
      for (uint64_t i = 1 + random->Below(10); i > 0; --i) {
        out += random->Pick(bases_);
        for (uint64_t k = random->Below(5); k > 0; --k) out += random->Pick(marks_);
      }
      break;
    case 8: AddSpecials(random, &out); break;
    case 9:
      for (uint64_t i = 1 + random->Below(2); i > 0; --i) {
        const std::string& unit = random->Pick(runs_);
        for (uint64_t k = 1 + random->Below(200); k > 0; --k) out += unit;
      }
      break;
    case 10:
      for (uint64_t i = 2 + random->Below(3); i > 0; --i) out += Make(random, random->Below(10));
      break;
    default:
      if (random->Below(20) != 0) {
        const auto [first, last] = random->Pick(ranges_);
        AddCodePoint(random, first, last, &out);
      }
  }
  return out;
}

}  // namespace quire
