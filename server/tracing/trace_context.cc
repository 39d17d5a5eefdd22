// Reads and writes the two headers, character by character: they come from any client.
#include "server/tracing/trace_context.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace quire {
namespace {

constexpr char kDigits[] = "0123456789abcdef";
// vv-tttttttttttttttttttttttttttttttt-ssssssssssssssss-ff
constexpr size_t kLength = 55;
constexpr size_t kMaxStateBytes = 512;
constexpr int kMaxStateMembers = 32;

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The standard takes lower-case digits only.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

template <size_t N>
bool ReadHex(std::string_view text, std::array<uint8_t, N>* bytes) {
  for (size_t i = 0; i < N; ++i) {
    const int high = DigitOf(text[2 * i]);
    const int low = DigitOf(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*bytes)[i] = static_cast<uint8_t>(16 * high + low);
  }
  return true;
}

template <size_t N>
void AppendHex(const std::array<uint8_t, N>& bytes, std::string* text) {
  for (const uint8_t byte : bytes) {
    *text += kDigits[byte >> 4];
    *text += kDigits[byte & 15];
  }
}

template <typename Id>
bool IsZero(const Id& id) {
  return std::all_of(id.begin(), id.end(), [](uint8_t byte) { return byte == 0; });
}

template <typename Id>
Id RandomId() {
  // As much entropy as an id has: threads of many servers must not begin alike.
  static thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(),
                       device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  Id id{};
  while (IsZero(id)) {
    for (size_t at = 0; at < id.size(); at += sizeof(uint64_t)) {
      const uint64_t bits = random();
      std::memcpy(id.data() + at, &bits, sizeof bits);
    }
  }
  return id;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  header = Trim(header);
  if (header.size() < kLength) return std::nullopt;
  if (header[2] != '-' || header[35] != '-' || header[52] != '-') return std::nullopt;
  TraceContext context;
  std::array<uint8_t, 1> version{}, flags{};
  if (!ReadHex(header.substr(0, 2), &version) ||
      !ReadHex(header.substr(3, 32), &context.trace_id) ||
      !ReadHex(header.substr(36, 16), &context.span_id) || !ReadHex(header.substr(53, 2), &flags)) {
    return std::nullopt;
  }
  if (version[0] == 0xff || IsZero(context.trace_id) || IsZero(context.span_id)) {
    return std::nullopt;
  }
  if (header.size() > kLength && (version[0] == 0 || header[kLength] != '-')) return std::nullopt;
  context.sampled = (flags[0] & 1) != 0;
  return context;
}

std::string FormatTraceparent(const TraceContext& context) {
  std::string header = "00-";
  header.reserve(kLength);
  AppendHex(context.trace_id, &header);
  header += '-';
  AppendHex(context.span_id, &header);
  return header += context.sampled ? "-01" : "-00";
}

std::string BoundTracestate(std::string_view header) {
  header = Trim(header);
  const auto printable = [](char c) { return c == '\t' || (c >= ' ' && c <= '~'); };
  if (!std::all_of(header.begin(), header.end(), printable)) return "";
  size_t end = 0;  // of the members that fit
  int members = 0;
  for (size_t at = 0; at < header.size() && members < kMaxStateMembers; ++members) {
    const size_t next = std::min(header.find(',', at), header.size());
    if (next > kMaxStateBytes) break;
    end = next;
    at = next + 1;
  }
  return std::string(header.substr(0, end));
}

std::string HexOf(const TraceId& id) {
  std::string text;
  AppendHex(id, &text);
  return text;
}

TraceId NewTraceId() { return RandomId<TraceId>(); }

SpanId NewSpanId() { return RandomId<SpanId>(); }

bool WithinRatio(const TraceId& id, double ratio) {
  // Of the last eight bytes, which are random also where the first hold a time, the upper 53 bits:
  // a double holds each of their values exactly.
  uint64_t bits = 0;
  for (size_t i = 8; i < id.size(); ++i) bits = bits << 8 | id[i];
  return static_cast<double>(bits >> 11) < std::ldexp(ratio, 53);
}

}  // namespace quire
