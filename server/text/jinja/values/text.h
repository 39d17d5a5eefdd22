// Python's string operations on UTF-8, as chat templates use them. Counts are of code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

bool IsPythonSpace(char32_t c);

enum class Side : uint8_t { kBoth, kLeft, kRight };
// Without `characters`, white space.
std::string_view Strip(std::string_view text, Side side);
std::string_view Strip(std::string_view text, Side side, std::string_view characters);

// Cuts at runs of white space, at most `limit` times (negative: everywhere).
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit,
                                         bool from_right = false);
// REQUIRES a non-empty separator. Cuts at most `limit` times (negative: everywhere), from the right
// if `from_right`.
std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    int64_t limit, bool from_right = false);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// Where `part` begins first and last in `text`, from byte `at` on; npos if nowhere. Take time
// linear in both, which std::string's do not.
size_t FindFirst(std::string_view text, std::string_view part, size_t at = 0);
size_t FindLast(std::string_view text, std::string_view part);

int64_t CountCodePoints(std::string_view text);
size_t ByteAt(std::string_view text, int64_t index);  // of a code point; the size if past the end
std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string SwapCase(std::string_view text);
std::string Capitalize(std::string_view text);  // first letter upper case, the others lower
std::string Title(std::string_view text);       // capitalizes every run of letters
std::string EscapeHtml(std::string_view text);  // & < > " '

}  // namespace quire::jinja
