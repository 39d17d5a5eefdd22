// StructuredOutput of quire.v1 as the grammar that the engine compiles.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/compile_guide.h"
#include "engine/values/sampling_params.h"

namespace quire {

namespace v1 {
class StructuredOutput;
}

// The structure that a request wants, in whatever protocol.
struct Structure {
  GrammarSource source;
  std::string field;  // of the client's message, for refusals
};

// INVALID_ARGUMENT for an empty text, and for no choices, an empty one or too many. Whether the
// grammar can be compiled is not known yet.
absl::StatusOr<Structure> MakeStructure(GrammarSource source, std::string field);

// Of a grammar in either notation, as vLLM takes it: GBNF if it has a "::=" outside comments, else
// Lark.
GrammarKind GrammarKindOf(std::string_view grammar);

// As MakeStructure, and INVALID_ARGUMENT for a message without a format.
absl::StatusOr<Structure> DecodeStructure(const v1::StructuredOutput& in);

// INVALID_ARGUMENT for parameters that contradict any structure.
absl::Status CheckBesideStructure(const Structure& structure, const SamplingParams& sampling);

}  // namespace quire
