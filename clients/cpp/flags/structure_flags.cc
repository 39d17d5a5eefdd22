// One row for each form that a structure may be given in.
#include "clients/cpp/flags/structure_flags.h"

namespace quire::cli {

std::vector<flags::Flag> StructureRows(StructureFlags* flags) {
  constexpr char kGroup[] = "Structure of the output, at most one";
  return {
      {.name = "json-schema",
       .group = kGroup,
       .help = "a JSON value that the JSON Schema in this file accepts",
       .target = &flags->json_schema,
       .placeholder = "FILE"},
      {.name = "json-object",
       .group = kGroup,
       .help = "any JSON object",
       .target = &flags->json_object},
      {.name = "regex",
       .group = kGroup,
       .help = "a text that this regular expression matches whole",
       .target = &flags->regex},
      {.name = "grammar",
       .group = kGroup,
       .help = "a text of the GBNF grammar in this file",
       .target = &flags->grammar,
       .placeholder = "FILE"},
      {.name = "lark",
       .group = kGroup,
       .help = "a text of the Lark grammar in this file",
       .target = &flags->lark,
       .placeholder = "FILE"},
      {.name = "choice",
       .group = kGroup,
       .help = "this text or another one given so; repeatable",
       .target = &flags->choices,
       .placeholder = "TEXT"},
  };
}

}  // namespace quire::cli
