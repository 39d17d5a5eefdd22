// Reads the source into rules, and the rules into a table.
#include "engine/grammar/compile_guide.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/pushdown.h"
#include "engine/grammar/pushdown_guide.h"
#include "engine/grammar/readers/gbnf_reader.h"
#include "engine/grammar/readers/json_rules.h"
#include "engine/grammar/readers/lark_reader.h"
#include "engine/grammar/readers/regex_reader.h"
#include "engine/grammar/readers/schema_reader.h"
#include "engine/grammar/readers/text_cursor.h"

namespace quire {
namespace {

absl::Status CheckSource(const GrammarSource& source, const GuideLimits& limits) {
  size_t bytes = source.text.size();
  for (const std::string& choice : source.choices) bytes += choice.size();
  if (bytes > limits.max_source_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar: ", bytes, " bytes, the limit is ", limits.max_source_bytes));
  }
  if (const size_t at = FindInvalid(source.text); at != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("grammar: byte ", at, ": not valid UTF-8"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RuleId> ReadChoice(const std::vector<std::string>& choices, Grammar* grammar) {
  if (choices.empty()) return absl::InvalidArgumentError("choice: there are no choices");
  std::vector<ExprId> parts;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty() || FindInvalid(choices[i]) != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("choice[", i, "]: is ", choices[i].empty() ? "empty" : "not valid UTF-8"));
    }
    parts.push_back(grammar->Bytes(choices[i]));
  }
  return grammar->AddRule("choice", grammar->Choice(std::move(parts)));
}

RuleId Framed(const GrammarFrame& frame, RuleId document, Grammar* grammar) {
  std::vector<ExprId> parts;
  const auto add_text = [grammar](const std::string& text, std::vector<ExprId>* to) {
    if (!text.empty()) to->push_back(grammar->Bytes(text));
  };
  add_text(frame.open, &parts);
  parts.push_back(grammar->Call(document));
  if (frame.many) {
    std::vector<ExprId> another;
    add_text(frame.between, &another);
    another.push_back(grammar->Call(document));
    parts.push_back(grammar->Repeat(grammar->Sequence(std::move(another)), 0, Grammar::kUnbounded));
  }
  add_text(frame.close, &parts);
  return grammar->AddRule("framed", grammar->Sequence(std::move(parts)));
}

absl::StatusOr<RuleId> ReadSource(const GrammarSource& source, WorkMeter* meter, Grammar* grammar) {
  const GuideLimits& limits = meter->limits();
  switch (source.kind) {
    case GrammarKind::kChoice: return ReadChoice(source.choices, grammar);
    case GrammarKind::kGbnf: return ReadGbnf(source.text, limits, grammar);
    case GrammarKind::kLark: return ReadLark(source.text, limits, grammar);
    case GrammarKind::kRegex: {
      ASSIGN_OR_RETURN(
          const ExprId expr,
          ReadRegex(source.text, {.what = "regex", .max_depth = limits.max_depth}, grammar));
      return grammar->AddRule("regex", expr);
    }
    case GrammarKind::kJsonSchema: {
      ASSIGN_OR_RETURN(const RuleId document, ReadSchema(source.text, meter, grammar));
      return source.frame ? Framed(*source.frame, document, grammar) : document;
    }
    case GrammarKind::kJsonObject: return grammar->AddRule("json", JsonRules(grammar).Object());
  }
  return absl::InvalidArgumentError("grammar: of no kind that is supported");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CompiledGuide>> CompileGuide(
    const GrammarSource& source, std::shared_ptr<const GuideVocabulary> vocabulary,
    const GuideLimits& limits) {
  RETURN_IF_ERROR(CheckSource(source, limits));
  Grammar grammar;
  WorkMeter meter(limits);
  ASSIGN_OR_RETURN(const RuleId start, ReadSource(source, &meter, &grammar));
  ASSIGN_OR_RETURN(Pushdown table, MakePushdown(grammar, start, *vocabulary, &meter));
  return std::make_shared<const PushdownGuide>(std::move(table), std::move(vocabulary),
                                               limits.max_mask_bytes);
}

}  // namespace quire
