// A call is an object of a name and arguments, so all tools make one schema.
#include "server/structured/call_grammar.h"

#include <algorithm>
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

// The objects of a schema.
Json OnlyObjects(Json schema) {
  if (schema == true) schema = Json::object();
  if (!schema.is_object()) return schema;
  schema.erase("nullable");
  Json& type = schema["type"];
  const bool lists = type.is_array() && std::find(type.begin(), type.end(), "object") != type.end();
  if (type.is_null() || lists) type = "object";
  return schema;
}

}  // namespace

bool CallableTool::TakesObject() const {
  return parameters.is_object() && parameters.contains("type") && parameters["type"] == "object";
}

CallableTool ReadTool(const std::string& json) {
  const Json tool = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!tool.is_object()) return {};
  const Json& function =
      tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
  CallableTool out;
  if (function.contains("name") && function["name"].is_string()) out.name = function["name"];
  const bool takes_some = function.contains("parameters") && !function["parameters"].is_null();
  out.parameters = takes_some ? OnlyObjects(function["parameters"])
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
