// Fills the table from the classes of code points and the ranges that make_char_kinds.py wrote.
#include "server/text/unicode/char_kinds.h"

#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "kernels/check.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

CharKind KindOf(CharClass value) {
  switch (value) {
    case CharClass::kLetter: return CharKind::kCaseless;  // unless a range says more
    case CharClass::kNumber: return CharKind::kNumber;
    case CharClass::kSpace: return CharKind::kSpace;
    case CharClass::kOther: break;
  }
  return CharKind::kOther;
}

CharKindTable BuildTable() {
  std::string kinds(0x110000, '\0');
  for (char32_t c = 0; c < kinds.size(); ++c) {
    kinds[c] = static_cast<char>(KindOf(ClassOf(CharClasses(), c)));
  }
  for (size_t i = 0; i < kKindRangesSize; ++i) {
    const KindRange& range = kKindRanges[i];
    for (char32_t c = range.first; c <= range.last; c += range.step) {
      kinds[c] = static_cast<char>(range.kind);
    }
  }
  CharKindTable table;
  std::map<std::string_view, size_t> seen;
  for (size_t page = 0; page < table.page_of.size(); ++page) {
    const std::string_view content(kinds.data() + page * 256, 256);
    const auto [at, inserted] = seen.emplace(content, seen.size());
    CHECK_LT(at->second, table.pages.size());
    table.page_of[page] = static_cast<uint8_t>(at->second);
    if (inserted) std::memcpy(table.pages[at->second].data(), content.data(), 256);
  }
  return table;
}

}  // namespace

const CharKindTable& KindsOfChars() {
  static const CharKindTable table = BuildTable();
  return table;
}

}  // namespace quire
