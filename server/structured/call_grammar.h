// CallGrammar: the tools of a chat as the grammar of an answer that calls them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/grammar/compile_guide.h"
#include "server/answer_parts/call_format.h"

namespace quire {

struct CallableTool {
  std::string name;                   // empty: it has none
  nlohmann::ordered_json parameters;  // a JSON Schema of the arguments

  // Whether all that the schema allows are objects: a call with other arguments is none.
  bool TakesObject() const;
};

// The name and parameters of {"function": {...}}, or of the object itself. Without parameters, or
// with null, a tool takes none. A schema that allows objects among other values allows only them.
CallableTool ReadTool(const std::string& json);

// One call of one of the tools, or with `many` several, as models of the format write them.
GrammarSource CallGrammar(const CallFormat& format, std::vector<CallableTool> tools, bool many);

}  // namespace quire
