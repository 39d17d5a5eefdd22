// Escaping and numbers for HTML pages.
#include "clients/load/report/html_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire::load {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Length of the UTF-8 sequence at the start of `text`, or 0 if there is none; sets its code point.
size_t Decode(std::string_view text, uint32_t* code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 0 || lead > 0xF4 || length > text.size()) return 0;
  *code = length == 1 ? lead : lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    *code = *code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return *code < kLeast[length] ? 0 : length;
}

bool AllowedInXml(uint32_t code) {
  return code == '\t' || code == '\n' || (code >= 0x20 && code < 0xD800) ||
         (code >= 0xE000 && code < 0xFFFE) || (code >= 0x10000 && code <= 0x10FFFF);
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t length = Decode(text, &code);
    if (length == 0 || !AllowedInXml(code)) {
      out += kReplacement;
    } else if (code == '<') {
      out += "&lt;";
    } else if (code == '>') {
      out += "&gt;";
    } else if (code == '&') {
      out += "&amp;";
    } else if (code == '"') {
      out += "&quot;";
    } else if (code == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string Readable(double value) {
  if (!std::isfinite(value)) return "–";
  if (value < 0) return absl::StrCat("−", Readable(-value));
  if (value != 0 && value < 1e-3) return "<0.001";
  if (value >= 1e15) return absl::StrFormat("%.2e", value);
  const bool whole = value == std::floor(value) && value < 1e7;
  // 9.995 reads as "10.0", so the digits left of the point are counted after rounding to three.
  const int digits = value == 0 ? 0 : static_cast<int>(std::floor(std::log10(value * 1.0005)));
  const double unit = std::pow(10.0, digits - 2);
  if (whole || digits >= 2) {
    std::string text = absl::StrFormat("%.0f", whole ? value : std::round(value / unit) * unit);
    for (int i = static_cast<int>(text.size()) - 3; i > 0; i -= 3) text.insert(i, 1, ',');
    return text;
  }
  return absl::StrFormat("%.*f", 2 - digits, value);
}

std::string Compact(double value) {
  const double size = std::fabs(value);
  if (!std::isfinite(value)) return "–";
  if (size >= 1e9) return absl::StrCat(value / 1e9, "G");
  if (size >= 1e6) return absl::StrCat(value / 1e6, "M");
  if (size >= 1e3) return absl::StrCat(value / 1e3, "k");
  return absl::StrCat(value);
}

TimeUnit UnitFor(double largest_ms) {
  if (largest_ms >= 2000) return {"s", 1e-3};
  if (largest_ms >= 2) return {"ms", 1};
  return {"µs", 1e3};
}

std::string Duration(double ms) {
  const TimeUnit unit = ms == 0 ? TimeUnit{"ms", 1} : UnitFor(ms * 2);
  return absl::StrCat(Readable(ms * unit.per_ms), " ", unit.name);
}

std::string ReadableDate(const std::string& date) {
  if (date.size() != 15 || date[8] != '-') return date;
  return absl::StrCat(date.substr(0, 4), "-", date.substr(4, 2), "-", date.substr(6, 2), " ",
                      date.substr(9, 2), ":", date.substr(11, 2), " UTC");
}

}  // namespace quire::load
