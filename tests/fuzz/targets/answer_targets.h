// Fuzz targets for text that a model writes and for the headers of calls: each takes any bytes and
// aborts if a reader breaks its contract.
#pragma once

#include <string_view>

namespace quire {

// The first byte chooses the formats of reasoning and of tool calls, the rest is an answer: what is
// found does not depend on how the text is cut, and each call is of a known tool.
void FuzzAnswer(std::string_view bytes);
// Headers of W3C Trace Context: what is accepted is written as it is read.
void FuzzTraceHeaders(std::string_view bytes);

}  // namespace quire
