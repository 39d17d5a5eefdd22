// The interpreter of templates: equal to jinja2 on thousands of expressions and templates.
// Covers server/text/jinja/expression_parser.cc, server/text/jinja/filters.cc,
// server/text/jinja/functions.cc, server/text/jinja/lexer.cc, server/text/jinja/list_filters.cc,
// server/text/jinja/macro_call.cc, server/text/jinja/value_tests.cc,
// server/text/jinja/values/access.cc, server/text/jinja/values/budget.cc,
// server/text/jinja/values/dict.cc, server/text/jinja/values/format.cc,
// server/text/jinja/values/methods.cc, server/text/jinja/values/operators.cc,
// server/text/jinja/values/printf.cc, server/text/jinja/values/text.cc,
// server/text/jinja/values/value.cc
#include "server/text/jinja/interpreter.h"

#include <fstream>
#include <iterator>
#include <string>

#include "absl/time/civil_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/jinja/parser.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/template/json_value.h"

namespace quire::jinja {
namespace {

// The clock of make_chat_goldens.py.
absl::Time GoldenNow() {
  return absl::FromCivil(absl::CivilSecond(2024, 7, 6, 15, 4, 9), absl::LocalTimeZone()) +
         absl::Microseconds(1234);
}

Value ReadGoldens(const std::string& name) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/testdata/chat_templates/" + name, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  absl::StatusOr<Value> value = ReadJsonValue(text, name, JsonLimits());
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Value();
}

absl::StatusOr<Outcome> Render(const std::string& source, const Dict& variables) {
  absl::StatusOr<Block> block = Parse(source);
  if (!block.ok()) return block.status();
  RunInput input;
  input.now = GoldenNow();
  for (const auto& [name, value] : variables) input.variables.emplace_back(name.string(), value);
  return Run(*block, std::move(input));
}

TEST(JinjaTest, EqualsJinja2OnExpressionsAndStatements) {
  const Value file = ReadGoldens("expressions.json");
  const Dict& variables = file.dict().Find("variables")->dict();
  const List& cases = file.dict().Find("cases")->list();
  ASSERT_GT(cases.size(), 5000u);
  int wrong = 0;
  for (const Value& one : cases) {
    const std::string& source = one.list()[0].string();
    const auto outcome = Render(source, variables);
    std::string got = "error", wanted = "error";
    if (outcome.ok()) got = (outcome->raised ? "raised:" : "ok:") + outcome->text;
    if (one.list().size() == 3) {
      wanted = one.list()[1].string() + ":" + one.list()[2].string();
    }
    if (got == wanted) continue;
    // One line each, so that many can be read.
    ADD_FAILURE() << source << "\n  jinja2: " << wanted << "\n  here:   " << got
                  << (outcome.ok() ? "" : std::string(outcome.status().message()));
    if (++wrong == 200) break;
  }
}

}  // namespace
}  // namespace quire::jinja
