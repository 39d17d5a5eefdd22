// Cases that a Python script judged: grammars, and texts with whether each is a text of it.
#pragma once

#include <memory>
#include <string>

#include "engine/base/json.h"
#include "engine/grammar/compile_guide.h"
#include "tests/engine/grammar/guide_driver.h"

namespace quire {

inline GrammarSource SourceOf(const nlohmann::json& test) {
  const std::string kind = test["kind"];
  return {.kind = kind == "regex"  ? GrammarKind::kRegex
                  : kind == "gbnf" ? GrammarKind::kGbnf
                                   : GrammarKind::kJsonSchema,
          .text = test["source"]};
}

// Texts on which the guide and the judgement differ; refused grammars count as one difference.
inline int Differences(const nlohmann::json& tests,
                       const std::shared_ptr<const GuideVocabulary>& vocabulary) {
  int differences = 0;
  for (const auto& test : tests) {
    const auto guide = CompileGuide(SourceOf(test), vocabulary);
    if (!guide.ok()) {
      ADD_FAILURE() << test["source"] << ": " << guide.status();
      ++differences;
      continue;
    }
    for (const auto& text : test["texts"]) {
      if (Accepts(**guide, text[0].get<std::string>()) == text[1].get<bool>()) continue;
      ADD_FAILURE() << test["source"] << "\n  " << (text[1].get<bool>() ? "has " : "has not ")
                    << text[0];
      ++differences;
    }
  }
  return differences;
}

}  // namespace quire
