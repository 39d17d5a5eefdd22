// Templates that a hostile checkpoint could bring: each ends with an error instead of a crash, a
// hang, or memory without a bound.
// Covers server/text/jinja/values/callable.cc, server/text/jinja/values/charges.cc
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/template/chat_template.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// 2^50 parts, each level twice the one below.
constexpr char kDoubled[] =
    "{% set ns = namespace(x=['a']) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% endfor %}";
constexpr char kDoubledTuple[] =
    "{% set ns = namespace(x=('a',)) %}{% for i in range(50) %}{% set ns.x = (ns.x, ns.x) %}"
    "{% endfor %}";

absl::StatusOr<std::string> Render(const std::string& source, const std::string& content = "Hi") {
  auto parsed = ChatTemplate::Parse(source, {});
  if (!parsed.ok()) return parsed.status();
  ChatInput chat;
  chat.messages = {TextMessage("user", content)};
  return (*parsed)->Render(chat);
}

std::string ErrorOf(const std::string& source) {
  const auto text = Render(source);
  EXPECT_FALSE(text.ok()) << source << " is " << text->substr(0, 100);
  return text.ok() ? "" : std::string(text.status().message());
}

testing::Matcher<std::string> IsOverBudget() {
  return testing::AnyOf(HasSubstr("steps"), HasSubstr(" ms"), HasSubstr("bytes of text"));
}

TEST(HostileTemplateTest, RefusesArgumentsWithAnEmptyName) {
  for (const char* call : {"'a'.find(**{'': 1})", "'a'.join(**{'': 1})", "{}.get(**{'': 1})",
                           "'a'.startswith(**{'': 1})", "'a'.replace('a', **{'': 'b'})",
                           "'a'.center(**{'': 1})", "[1].index(**{'': 1})"}) {
    EXPECT_THAT(ErrorOf("{{ " + std::string(call) + " }}"), HasSubstr("has no argument ''"));
  }
}

TEST(HostileTemplateTest, ChargesANamespaceForItsMembers) {
  for (const char* use : {"{{ ns }}", "{{ ns|string }}", "{{ ns ~ '' }}", "{{ '%s' % ns }}",
                          "{{ '{}'.format(ns) }}", "{{ 'x'|format(ns) }}"}) {
    EXPECT_THAT(ErrorOf(kDoubled + std::string(use)), IsOverBudget()) << use;
  }
}

TEST(HostileTemplateTest, KeepsNamespacesOutOfContainers) {
  for (const char* source :
       {"{% macro f() %}{% set ns.a = varargs %}{% endmacro %}{{ f(ns) }}{{ ns }}",
        "{% macro f() %}{% set ns.a = kwargs %}{% endmacro %}{{ f(b=ns) }}{{ ns }}",
        "{% set ns.a = [none]|map('default', ns, true)|list %}{{ ns }}",
        "{% set ns.a = [{}]|map(attribute='b', default=ns)|list %}{{ ns }}",
        "{% set ns.a = [1]|batch(2, ns)|list %}{{ ns }}",
        "{% set ns.a = [1]|slice(2, ns)|list %}{{ ns }}",
        "{% set ns.a = [{}]|groupby('b', default=ns) %}{{ ns }}", "{% set ns.a = [ns] %}",
        "{% set ns.a = (1, [ns]) %}", "{% set ns.a = {'b': ns} %}", "{% set ns.a = dict(b=ns) %}",
        "{% set ns.a = dict([[1, ns]]) %}"}) {
    EXPECT_THAT(ErrorOf("{% set ns = namespace() %}" + std::string(source)),
                HasSubstr("a namespace within another value"))
        << source;
  }
  EXPECT_EQ(Render("{% set ns = namespace(a=1) %}{{ '%s'|format(ns) }}").value(),
            "<Namespace {'a': 1}>");
}

TEST(HostileTemplateTest, BoundsTheDepthOfCallables) {
  EXPECT_THAT(ErrorOf("{% set ns = namespace(m=1) %}{% for i in range(50000) %}"
                      "{% set ns.m = [ns.m].index %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(l=1) %}{% for i in range(50000) %}"
                      "{% for x in [ns.l] %}{% set ns.l = loop %}{% endfor %}{% endfor %}"),
              HasSubstr("nested deeper"));
}

// The leak checker of a sanitizer sees the cycle that these would make.
TEST(HostileTemplateTest, KeepsLoopsOutOfWhatALoopSaw) {
  for (const char* seen : {"loop", "[loop]", "loop.changed", "{'a': loop}", "namespace(l=loop)"}) {
    EXPECT_THAT(
        ErrorOf("{% for x in [1] %}{{ loop.changed(" + std::string(seen) + ") }}{% endfor %}"),
        HasSubstr("loop.changed"));
  }
}

TEST(HostileTemplateTest, ChargesComparisonsAndHashes) {
  for (const char* use :
       {"{% for i in [1, 2] %}{{ loop.changed(ns.x) }}{% endfor %}",
        "{{ [{}, {}]|groupby('a', default=ns.x) }}", "{{ [1].index(ns.x) }}",
        "{{ [ns.x, ns.x]|unique|list }}", "{{ ns.x is sameas(ns.x[0]) }}", "{{ 1|round(0, ns.x) }}",
        "{{ raise_exception(ns.x) }}", "{{ [1]|join(ns.x) }}"}) {
    EXPECT_THAT(ErrorOf(kDoubled + std::string(use)), IsOverBudget()) << use;
  }
  for (const char* use :
       {"{{ {ns.x: 1} }}", "{{ {}[ns.x] }}", "{{ {}.get(ns.x) }}", "{{ ns.x in {} }}",
        "{{ dict([[ns.x, 1]]) }}", "{{ [1]|map(attribute=ns.x)|list }}"}) {
    EXPECT_THAT(ErrorOf(kDoubledTuple + std::string(use)), IsOverBudget()) << use;
  }
}

TEST(HostileTemplateTest, ChargesWhatAnArgumentCosts) {
  EXPECT_THAT(ErrorOf("{{ [1, 2]|sort(attribute='a,' * 2000000) }}"), IsOverBudget());
  EXPECT_THAT(ErrorOf("{% set s = 'x' * 4000000 %}{{ ([s] * 100000)|map(attribute=0)|list }}"),
              IsOverBudget());
  EXPECT_THAT(ErrorOf("{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{{ s|length }}"
                      "{% endfor %}"),
              IsOverBudget());
}

// A product of the two lengths would take hours.
TEST(HostileTemplateTest, SearchesInLinearTime) {
  const std::string texts =
      "{% set s = 'a' * 2000000 %}{% set p = 'a' * 1000000 ~ 'b' ~ 'a' * 900000 %}";
  for (const char* use :
       {"{{ s.find(p) }}", "{{ s.rfind(p) }}", "{{ s.count(p) }}", "{{ s.split(p)|length }}",
        "{{ s.rsplit(p)|length }}", "{{ s.replace(p, '')|length }}", "{{ p in s }}",
        "{{ s.rpartition(p)|length }}", "{{ s.strip('b' * 1000000)|length }}"}) {
    const auto text = Render(texts + use);
    if (text.ok()) continue;
    EXPECT_THAT(std::string(text.status().message()), IsOverBudget()) << use;
  }
  const std::string content = std::string(1'000'000, 'a') + "b" + std::string(900'000, 'a');
  auto parsed = ChatTemplate::Parse("{{ 'a' * 3000000 }}", {});
  ChatInput chat;
  chat.messages = {TextMessage("assistant", content)};
  chat.continue_final_message = true;
  EXPECT_FALSE((*parsed)->Render(chat).ok());
}

TEST(HostileTemplateTest, BoundsMemoryBeforeItIsTaken) {
  const std::string text = "{% set s = 'x' * 4000000 %}";
  EXPECT_THAT(ErrorOf(text + "{{ ''.join([s] * 10000) }}"), IsOverBudget());
  EXPECT_THAT(ErrorOf(text + "{{ ''.join({s: 1, s ~ 'y': 2}) }}"), HasSubstr("bytes of text"));
  EXPECT_THAT(ErrorOf(text + "{{ (['x'] * 10000)|map('center', 4000000)|list|length }}"),
              IsOverBudget());
  std::string sum = "{% set l = [0] * 1000000 %}{{ (l";
  for (int i = 0; i < 2000; ++i) sum += " + l";
  EXPECT_THAT(ErrorOf(sum + ")|length }}"), IsOverBudget());
  EXPECT_THAT(ErrorOf("{% set ns = namespace(x=[0] * 400000) %}{% for i in range(60) %}"
                      "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson(indent=64) }}"),
              IsOverBudget());
  EXPECT_EQ(
      Render("{% set s = 'x' * 100000 %}{{ s|first }}{{ s|last }}{{ (s|reverse)[:3] }}").value(),
      "xxxxx");
}

// Each of them would be a key of its own with the same hash.
TEST(HostileTemplateTest, TakesOneNanForAnother) {
  EXPECT_EQ(Render("{% set n = 'nan'|float %}{{ ([n] * 90000)|unique|list }}"
                   "{{ n == n }}{{ n in [n] }}")
                .value(),
            "[nan]FalseTrue");
}

TEST(HostileTemplateTest, TakesIntegersAtTheirEnds) {
  const std::string least = "(-9223372036854775807 - 1)";
  EXPECT_EQ(Render("{{ 5|round(-400) }} {{ 1.5|round(-400) }} {{ -1.5|round(-400) }}").value(),
            "0 0.0 -0.0");
  EXPECT_EQ(Render("{{ 5|round(" + least + ") }} {{ 'ab'[::" + least + "] }}").value(), "0 b");
  EXPECT_EQ(Render("{{ 'abc'.center(" + least + ") }} {{ 'aXa'.replace('a', 'b', " + least + ") }}")
                .value(),
            "abc bXb");
  EXPECT_THAT(ErrorOf("{{ 9223372036854775807|round(-1) }}"), HasSubstr("integer out of range"));
  EXPECT_THAT(ErrorOf("{{ 1.7e308|round(-308) }}"), HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf("{{ 5|round(-400, 'ceil') }}"), HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf("{{ 2.5|round(400, 'floor') }}"), HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf("{{ 'abcdef'|truncate(" + least + ") }}"), HasSubstr("too small"));
}

}  // namespace
}  // namespace quire
