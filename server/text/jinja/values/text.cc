// String operations over code points; case by utf8proc's simple mappings.
#include "server/text/jinja/values/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

bool IsLetter(char32_t c) { return ClassOf(CharClasses(), c) == CharClass::kLetter; }

// The code point that ends at byte `end`.
CodePoint LastBefore(std::string_view text, size_t end) {
  return DecodeUtf8(text.data() + CodePointBegin(text, end - 1));
}

template <class Drop>
std::string_view StripIf(std::string_view text, Side side, const Drop& drop) {
  while (side != Side::kRight && !text.empty()) {
    const CodePoint c = DecodeUtf8(text.data());
    if (!drop(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (side != Side::kLeft && !text.empty()) {
    const CodePoint c = LastBefore(text, text.size());
    if (!drop(c.value)) break;
    text.remove_suffix(c.size);
  }
  return text;
}

template <class Map>
std::string MapCodePoints(std::string_view text, const Map& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text.data() + at);
    AppendUtf8(map(c.value), &out);
    at += c.size;
  }
  return out;
}

char32_t Upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<int>(c))); }
char32_t Lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<int>(c))); }

}  // namespace

bool IsPythonSpace(char32_t c) {
  return (c >= 0x1C && c <= 0x1F) || ClassOf(CharClasses(), c) == CharClass::kSpace;
}

std::string_view Strip(std::string_view text, Side side) {
  return StripIf(text, side, IsPythonSpace);
}

std::string_view Strip(std::string_view text, Side side, std::string_view characters) {
  std::u32string sorted;  // so that the cost is no product of two lengths
  for (size_t at = 0; at < characters.size(); at = CodePointEnd(characters, at)) {
    sorted += DecodeUtf8(characters.data() + at).value;
  }
  std::ranges::sort(sorted);
  return StripIf(text, side,
                 [&sorted](char32_t c) { return std::ranges::binary_search(sorted, c); });
}

std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> out;
  const Side near = from_right ? Side::kRight : Side::kLeft;
  text = Strip(text, near);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.push_back(text);
      break;
    }
    size_t size = 0;
    while (size < text.size()) {
      const size_t at = from_right ? CodePointBegin(text, text.size() - size - 1) : size;
      const CodePoint c = DecodeUtf8(text.data() + at);
      if (IsPythonSpace(c.value)) break;
      size += static_cast<size_t>(c.size);
    }
    const size_t cut = from_right ? text.size() - size : size;
    out.push_back(from_right ? text.substr(cut) : text.substr(0, cut));
    text = Strip(from_right ? text.substr(0, cut) : text.substr(cut), near);
  }
  if (from_right) out = {out.rbegin(), out.rend()};
  return out;
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    int64_t limit, bool from_right) {
  std::vector<std::string_view> out;
  if (from_right) {
    const std::string mirror(text.rbegin(), text.rend());
    const std::string mirrored_separator(separator.rbegin(), separator.rend());
    for (const std::string_view part : Split(mirror, mirrored_separator, limit)) {
      const size_t end = mirror.size() - static_cast<size_t>(part.data() - mirror.data());
      out.push_back(text.substr(end - part.size(), part.size()));
    }
    return {out.rbegin(), out.rend()};
  }
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = FindFirst(text, separator, begin);
    if (at == std::string_view::npos) break;
    out.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  out.push_back(text.substr(begin));
  return out;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text.data() + at);
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) ||
                      (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                      c.value == 0x2028 || c.value == 0x2029;
    size_t next = at + c.size;
    if (ends) {
      if (c.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      out.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

size_t FindFirst(std::string_view text, std::string_view part, size_t at) {
  if (at > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + at, text.size() - at, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLast(std::string_view text, std::string_view part) {
  const std::string mirror(text.rbegin(), text.rend());
  const size_t at = FindFirst(mirror, std::string(part.rbegin(), part.rend()));
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  for (const char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return count;
}

size_t ByteAt(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at = CodePointEnd(text, at);
  return at;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
  std::string out;
  size_t at = 0;
  for (limit = std::max<int64_t>(limit, -1); limit != 0; --limit) {
    if (from.empty()) {  // between all code points
      out += to;
      if (at >= text.size()) return out;
      const size_t next = CodePointEnd(text, at);
      out += text.substr(at, next - at);
      at = next;
      continue;
    }
    const size_t found = FindFirst(text, from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  out += text.substr(at);
  return out;
}

std::string ToUpper(std::string_view text) {
  return MapCodePoints(Replace(text, "\u00DF", "SS", -1),
                       Upper);  // the only common letter that becomes two
}
std::string ToLower(std::string_view text) { return MapCodePoints(text, Lower); }

std::string SwapCase(std::string_view text) {
  return MapCodePoints(text, [](char32_t c) { return Upper(c) != c ? Upper(c) : Lower(c); });
}

std::string Capitalize(std::string_view text) {
  bool first = true;
  return MapCodePoints(
      text, [&first](char32_t c) { return std::exchange(first, false) ? Upper(c) : Lower(c); });
}

std::string Title(std::string_view text) {
  bool in_word = false;
  return MapCodePoints(text, [&in_word](char32_t c) {
    const bool first = !std::exchange(in_word, IsLetter(c));
    return first ? Upper(c) : Lower(c);
  });
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace quire::jinja
