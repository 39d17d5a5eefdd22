// CompileGuide: makes a grammar, in one of the languages that requests write, into a CompiledGuide.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/guide_vocabulary.h"
#include "engine/grammar/rules/guide_limits.h"
#include "engine/grammar/token_guide.h"

namespace quire {

enum class GrammarKind : uint8_t {
  kJsonSchema,  // text: a JSON Schema; the output is a document that it accepts
  kJsonObject,  // no text: the output is any JSON object
  kRegex,       // text: a regular expression that the whole output matches
  kGbnf,        // text: a grammar in GBNF; the output derives from its rule "root"
  kLark,        // text: a grammar in Lark; the output derives from its rule "start"
  kChoice,      // choices: the output is one of them
};

// The text around the documents of kJsonSchema: `open`, one document or, with `many`, several with
// `between` between them, `close`.
struct GrammarFrame {
  std::string open, between, close;
  bool many = false;

  bool operator==(const GrammarFrame&) const = default;
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;                  // UTF-8
  std::vector<std::string> choices;  // UTF-8, none empty
  std::optional<GrammarFrame> frame = {};
};

// INVALID_ARGUMENT says what of the grammar is wrong, not supported or beyond a limit, and where: a
// JSON pointer into the schema, a line and column of Lark, or a byte offset into the text.
absl::StatusOr<std::shared_ptr<const CompiledGuide>> CompileGuide(
    const GrammarSource& source, std::shared_ptr<const GuideVocabulary> vocabulary,
    const GuideLimits& limits = {});

}  // namespace quire
