// TraceContext: the place of a call in a distributed trace, as the headers `traceparent` and
// `tracestate` of W3C Trace Context (level 1) carry it. Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;  // all zero: no span

struct TraceContext {
  TraceId trace_id{};
  SpanId span_id{};
  bool sampled = false;  // the caller, or this server, records the trace
};

// The context in a `traceparent`; nullopt for an invalid one, which the standard says to ignore. A
// version later than 00 is read as far as this one knows it.
std::optional<TraceContext> ParseTraceparent(std::string_view header);
// The header of version 00.
std::string FormatTraceparent(const TraceContext& context);

// Whole members from the left of a `tracestate` that fit into 512 bytes, at most 32 of them. Empty
// if it holds a character that a header may not have.
std::string BoundTracestate(std::string_view header);

// 32 lower-case hexadecimal digits.
std::string HexOf(const TraceId& id);

// Random ids, never all zero.
TraceId NewTraceId();
SpanId NewSpanId();

// Whether a share `ratio` of all traces holds this one. Depends on the id alone, so servers of the
// same ratio agree.
bool WithinRatio(const TraceId& id, double ratio);

}  // namespace quire
