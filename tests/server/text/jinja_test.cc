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
#include "server/text/unicode/unicode.h"

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

// Compares with text that jinja2 3.1.6 printed. The condition of a loop is computed when its item
// is asked for.
TEST(JinjaTest, ComputesConditionsOfALoopTurnByTurn) {
  const std::string head = "{% set ns = namespace(n=0) %}{% for x in [1, 2, 3] if ns.n < ";
  const std::string tail = "{% set ns.n = ns.n + 1 %}{% endfor %}";
  const std::pair<const char*, const char*> cases[] = {
      {"1 %}{{ x }}", "1"},
      {"2 %}{{ x }}{{ loop.last }}", "1False2False3True"},
      {"1 %}{{ x }}{{ loop.length }}", "132333"},
      {"2 %}{{ x }}{{ loop.nextitem }}{{ loop.revindex }}", "12323231"},
  };
  for (const auto& [body, wanted] : cases) {
    const auto outcome = Render(head + body + tail, Dict());
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->text, wanted) << body;
  }
  // A condition that asks its own loop for more.
  const auto nested = Render(
      "{% set ns = namespace(l=none) %}{% for x in [1, 2, 3, 4] if not ns.l or ns.l.length > 0 %}"
      "{{ x }}{% set ns.l = loop %}{% endfor %}",
      Dict());
  EXPECT_TRUE(nested.ok()) << nested.status();
}

TEST(JinjaTest, ReadsUnicodeAsJinja2Does) {
  Dict variables;
  variables.Set("\u00e9t\u00e9", Value::Of("summer"));
  variables.Set("x",
                Value::Of(List{Value::Of(List{Value::Of(int64_t{1}), Value::Of(int64_t{2})})}));
  variables.Set("d", Value::Of([] {
                  Dict members;
                  members.Set("pop", Value::Of(int64_t{1}));
                  return members;
                }()));
  const std::pair<const char*, const char*> cases[] = {
      {"x\u00a0 {%- if 1 %}y{% endif %}", "xy"},
      {"{{\u00a01 }}", "1"},
      {"{{ \u00e9t\u00e9 }}{{ \u00e9 }}", "summer"},
      {"\n\u00a0{% if 1 %}y{% endif %}", "\ny"},
      {"\u2003{# c -#}\u2003z", "z"},
      {"\x1c{{- 1 }}{{ x\u0661 }}{{ a\u0301 }}", "1"},
      {"{{ 0x10 }} {{ 0b11 }} {{ 0o17 }} {{ 0X1_f }} {{ 1_0 }}", "16 3 15 31 10"},
      {"{{ x.0.1 }}{{ [[0, [1, 2]], 5].0.1.0 }}", "21"},
      {"{{ d.pop is defined }}{{ d['pop'] }}", "False1"},
      {"{{ 'aXbXc'.rsplit('X', 1) }}{{ 'aaa'.rsplit('aa') }}{{ ''.rsplit('x') }}",
       "['aXb', 'c']['a', '']['']"},
      {"{{ '\u00e9a\u00e9'.strip('\u00e9a') }}|{{ 'x\u00e9yx'.strip('x') }}", "|\u00e9y"},
      {"{{ 'hello'[::-2] }}{{ '\u00e9t\u00e9'[::-1] }}{{ 'abcdef'[-1:-9:-2] }}",
       "olh\u00e9t\u00e9fdb"},
      {"{{ 15|round(-1) }} {{ 25|round(-1) }} {{ -15|round(-1) }} {{ 5|round(-1) }} "
       "{{ 6|round(-1) }} {{ 149|round(-2) }}",
       "20 20 -20 0 10 100"},
  };
  for (const auto& [source, wanted] : cases) {
    const auto outcome = Render(source, variables);
    ASSERT_TRUE(outcome.ok()) << source << outcome.status();
    EXPECT_EQ(outcome->text, wanted) << source;
  }
  for (const char* source :
       {"{{ \u00b2 }}", "{{ \u0661 }}", "{{ 0x }}", "{{ x.0.1e3 }}", "{{ 0x11111111111111111 }}"}) {
    EXPECT_FALSE(Parse(source).ok()) << source;
  }
}

TEST(JinjaTest, QuotesWholeCharacters) {
  std::string accents = "a";
  for (int i = 0; i < 60; ++i) accents += "\u00e9";
  for (const std::string& source :
       {std::string("{{ \u20ac }}"), "{{ 1 '" + accents + "' }}", "{{ 1|" + accents + " }}",
        "{{ 1 is " + accents + " }}", "{% " + accents + " %}"}) {
    const auto parsed = Parse(source);
    ASSERT_FALSE(parsed.ok()) << source;
    const std::string message(parsed.status().message());
    EXPECT_EQ(FindInvalidUtf8(message), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace quire::jinja
