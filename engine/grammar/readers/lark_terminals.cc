// Defined by the texts that each terminal stands for. A definition may name others of the table.
#include "engine/grammar/readers/lark_terminals.h"

#include <algorithm>
#include <iterator>

namespace quire {
namespace {

struct Terminal {
  std::string_view name, body;
};

constexpr Terminal kTerminals[] = {
    {"DIGIT", "/[0-9]/"},
    {"HEXDIGIT", "/[0-9a-fA-F]/"},
    {"INT", "/[0-9]+/"},
    {"SIGNED_INT", "/[+-]?[0-9]+/"},
    {"DECIMAL", R"(/[0-9]+\.[0-9]*|\.[0-9]+/)"},
    {"FLOAT", "INT /[eE]/ SIGNED_INT | DECIMAL (/[eE]/ SIGNED_INT)?"},
    {"SIGNED_FLOAT", "/[+-]?/ FLOAT"},
    {"NUMBER", "INT | FLOAT"},
    {"SIGNED_NUMBER", "/[+-]?/ NUMBER"},
    {"LCASE_LETTER", "/[a-z]/"},
    {"UCASE_LETTER", "/[A-Z]/"},
    {"LETTER", "/[a-zA-Z]/"},
    {"WORD", "/[a-zA-Z]+/"},
    {"CNAME", "/[a-zA-Z_][a-zA-Z_0-9]*/"},
    // A backslash takes the next character along; the first quote behind it ends the string.
    {"ESCAPED_STRING", R"(/"([^"\\\n]|\\[^\n])*"/)"},
    {"WS_INLINE", R"(/[ \t]+/)"},
    {"WS", R"(/[ \t\f\r\n]+/)"},
    {"CR", R"(/\r/)"},
    {"LF", R"(/\n/)"},
    {"NEWLINE", R"(/(\r?\n)+/)"},
    {"SH_COMMENT", R"(/#[^\n]*/)"},
    {"CPP_COMMENT", R"(/\/\/[^\n]*/)"},
    {"SQL_COMMENT", R"(/--[^\n]*/)"},
    // No "*/" before the end.
    {"C_COMMENT", R"(/\/\*([^*]|\*+[^*\/])*\*+\//)"},
};

}  // namespace

std::string_view LarkTerminalBody(std::string_view name) {
  const auto* const at = std::find_if(std::begin(kTerminals), std::end(kTerminals),
                                      [name](const Terminal& each) { return each.name == name; });
  return at == std::end(kTerminals) ? std::string_view() : at->body;
}

}  // namespace quire
