// A call is an object of a name and arguments, so all tools make one schema.
#include "server/structured/call_grammar.h"

#include <utility>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// References into a tool's own schema, which is now a part of another.
void MoveReferences(const std::string& place, Json* schema) {
  for (auto& [key, value] : schema->items()) {
    if (key == "$ref" && value.is_string() && value.get<std::string>().starts_with('#')) {
      value = "#" + place + value.get<std::string>().substr(1);
    } else if (value.is_structured()) {
      MoveReferences(place, &value);
    }
  }
}

}  // namespace

CallableTool ReadTool(const std::string& json) {
  const Json tool = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!tool.is_object()) return {};
  const Json& function =
      tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
  CallableTool out;
  if (function.contains("name") && function["name"].is_string()) out.name = function["name"];
  out.parameters = function.contains("parameters")
                       ? function["parameters"]
                       : Json({{"type", "object"}, {"additionalProperties", false}});
  return out;
}

GrammarSource CallGrammar(const CallFormat& format, std::vector<CallableTool> tools, bool many) {
  const std::string member = format.arguments;
  Json calls = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    Json& parameters = tools[i].parameters;
    MoveReferences("/anyOf/" + std::to_string(i) + "/properties/" + member, &parameters);
    calls.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", tools[i].name}}}, {member, std::move(parameters)}}},
         {"required", {"name", member}},
         {"additionalProperties", false}});
  }
  return {.kind = GrammarKind::kJsonSchema,
          .text = Json({{"anyOf", std::move(calls)}}).dump(),
          .choices = {},
          .frame = GrammarFrame{format.open, format.between, format.close, many}};
}

}  // namespace quire
