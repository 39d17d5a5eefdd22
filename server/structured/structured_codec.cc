// Checks what the message alone shows.
#include "server/structured/structured_codec.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

constexpr size_t kMaxChoices = 1024;

absl::Status CheckChoices(const std::vector<std::string>& choices, const std::string& field) {
  if (choices.empty() || choices.size() > kMaxChoices) {
    return InvalidField(field, "must hold 1 to " + std::to_string(kMaxChoices) + " texts, not " +
                                   std::to_string(choices.size()));
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty()) {
      return InvalidField(field, "the text at index " + std::to_string(i) + " is empty");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Structure> MakeStructure(GrammarSource source, std::string field) {
  if (source.kind == GrammarKind::kChoice) {
    RETURN_IF_ERROR(CheckChoices(source.choices, field));
  } else if (source.kind != GrammarKind::kJsonObject && source.text.empty()) {
    return InvalidField(field, "is empty");
  }
  return Structure{std::move(source), std::move(field)};
}

GrammarKind GrammarKindOf(std::string_view grammar) {
  while (!grammar.empty()) {
    std::string_view line = grammar.substr(0, grammar.find('\n'));
    grammar.remove_prefix(std::min(grammar.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    line = line.substr(0, line.find("//"));
    if (line.find("::=") != std::string_view::npos) return GrammarKind::kGbnf;
  }
  return GrammarKind::kLark;
}

absl::StatusOr<Structure> DecodeStructure(const v1::StructuredOutput& in) {
  const std::string path = "structured_output.";
  switch (in.format_case()) {
    case v1::StructuredOutput::kJsonSchema:
      return MakeStructure({GrammarKind::kJsonSchema, in.json_schema(), {}}, path + "json_schema");
    case v1::StructuredOutput::kJsonObject:
      if (in.json_object()) return MakeStructure({}, path + "json_object");
      return InvalidField(path + "json_object", "is false; leave structured_output out");
    case v1::StructuredOutput::kRegex:
      return MakeStructure({GrammarKind::kRegex, in.regex(), {}}, path + "regex");
    case v1::StructuredOutput::kGrammar:
      return MakeStructure({GrammarKind::kGbnf, in.grammar(), {}}, path + "grammar");
    case v1::StructuredOutput::kLark:
      return MakeStructure({GrammarKind::kLark, in.lark(), {}}, path + "lark");
    case v1::StructuredOutput::kChoice: {
      const auto& texts = in.choice().texts();
      return MakeStructure({GrammarKind::kChoice, "", {texts.begin(), texts.end()}},
                           path + "choice.texts");
    }
    case v1::StructuredOutput::FORMAT_NOT_SET: break;
  }
  return InvalidField("structured_output",
                      "holds no format; set one of json_schema, json_object, regex, grammar, "
                      "lark, choice");
}

absl::Status CheckBesideStructure(const Structure& structure, const SamplingParams& sampling) {
  if (sampling.ignore_eos) {
    return InvalidField(structure.field,
                        "contradicts ignore_eos: the text ends when it is complete");
  }
  if (sampling.min_tokens > 0) {
    return InvalidField(structure.field, "contradicts min_tokens: the text may be complete before");
  }
  return absl::OkStatus();
}

}  // namespace quire
