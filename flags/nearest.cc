// Edit distance with swaps of neighbours (optimal string alignment).
#include "flags/nearest.h"

#include <algorithm>

namespace quire::flags {
namespace {

constexpr size_t kShortest = 3;

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({replaced, rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, const std::vector<NameChoice>& choices) {
  if (name.size() < kShortest) return "";
  const size_t most = std::max<size_t>(1, name.size() / 4);
  std::string_view nearest;
  size_t fewest = most + 1;
  for (const NameChoice& choice : choices) {
    const size_t longer = std::max(name.size(), choice.name.size());
    const size_t shorter = std::min(name.size(), choice.name.size());
    if (choice.name.size() < kShortest || longer - shorter > most) continue;
    const size_t edits = EditDistance(name, choice.name);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = choice.shown;
  }
  return std::string(nearest);
}

}  // namespace quire::flags
