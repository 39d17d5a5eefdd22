// Sets of characters and the lower case, as the `tokenizers` package 0.23 knows them: its parts
// follow different versions of Unicode, so the tables are probed from the package itself. Pure
// functions; any thread.
#pragma once

#include <string>

namespace quire {

// The symbols of ASCII, and general category P.
bool IsPunctuation(char32_t c);
// \w: letters, marks, decimal digits, connectors.
bool IsWordChar(char32_t c);
// What StripAccents removes: general category M.
bool IsAccent(char32_t c);
// Appends the lower case of `c`: two code points for U+0130, else one.
void AppendLower(char32_t c, std::u32string* out);

}  // namespace quire
