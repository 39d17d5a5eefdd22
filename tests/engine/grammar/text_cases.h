// Cases that a Python script judged: grammars, and texts with whether each is a text of it.
#pragma once

#include <algorithm>
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
                  : kind == "lark" ? GrammarKind::kLark
                                   : GrammarKind::kJsonSchema,
          .text = test["source"]};
}

// Texts on which the guide and the judgement differ. A grammar that is refused counts as one,
// except for having no text where none is judged to be one.
inline int Differences(const nlohmann::json& tests,
                       const std::shared_ptr<const GuideVocabulary>& vocabulary) {
  int differences = 0;
  for (const auto& test : tests) {
    const auto guide = CompileGuide(SourceOf(test), vocabulary);
    const auto judged = [](const auto& text) { return text[1].template get<bool>(); };
    const bool has_text = std::any_of(test["texts"].begin(), test["texts"].end(), judged);
    const bool impossible =
        guide.status().message().find("no text can be finished") != std::string_view::npos;
    if (impossible && !has_text) continue;
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
