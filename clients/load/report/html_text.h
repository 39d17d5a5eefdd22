// Text for an HTML page that is also well-formed XML: escaping of foreign text, and readable
// numbers.
#pragma once

#include <string>
#include <string_view>

namespace quire::load {

// For element content and quoted attributes. Bytes that are no UTF-8, and characters that XML does
// not allow, become U+FFFD.
std::string Escape(std::string_view text);

// Three significant digits, thousands separated: "0.0123", "41.2", "1,240", "56,300"; integers of
// less than ten million whole; "<0.001" for less than that. "–" for values that are not finite.
std::string Readable(double value);
// For axes: "0.5", "20", "1.5k", "20M".
std::string Compact(double value);

// A unit in which the greatest of some milliseconds reads well, and how many of it make up one.
struct TimeUnit {
  const char* name;  // "µs", "ms", "s"
  double per_ms;
};
TimeUnit UnitFor(double largest_ms);
// "41.2 ms", "1.24 s".
std::string Duration(double ms);

// "20261120-181500" as "2026-11-20 18:15 UTC"; anything else as it is.
std::string ReadableDate(const std::string& date);

// The style sheet of report pages; contains no character that XML would have escaped.
const char* PageStyle();

}  // namespace quire::load
