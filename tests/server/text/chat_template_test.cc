// ChatTemplate: equal to jinja2 on every golden chat, refusals with a reason, and enforced limits.
// Covers server/text/jinja/interpreter.cc, server/text/jinja/parser.cc
#include "server/text/template/chat_template.h"

#include <fstream>
#include <iterator>
#include <string>

#include "absl/time/civil_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/template/json_value.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

TemplateVariables Tokens() {
  return {{"bos_token", jinja::Value::Of("<s>")}, {"eos_token", jinja::Value::Of("</s>")}};
}

ChatInput Chat(const std::string& content) {
  ChatInput chat;
  chat.messages.push_back(TextMessage("user", content));
  return chat;
}

absl::StatusOr<std::string> ParseAndRender(const std::string& source,
                                           const ChatInput& chat = Chat("Hello")) {
  auto parsed = ChatTemplate::Parse(source, Tokens());
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(chat);
}

// Of the template, or of a chat of one message.
std::string ErrorOf(const std::string& source) {
  const auto text = ParseAndRender(source);
  EXPECT_FALSE(text.ok()) << source << " is " << *text;
  if (text.ok()) return "";
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(text.status().message());
}

// A chat of goldens.json, at the clock of make_chat_goldens.py.
ChatInput GoldenChat(const jinja::Value& chat) {
  ChatInput out;
  out.add_generation_prompt = chat.dict().Find("add_generation_prompt")->IsTrue();
  out.messages = chat.dict().Find("messages")->list();
  for (const auto& [name, value] :
       {std::pair("tools", &out.tools), {"documents", &out.documents}}) {
    if (const jinja::Value* given = chat.dict().Find(name); given != nullptr) *value = *given;
  }
  if (const jinja::Value* given = chat.dict().Find("kwargs"); given != nullptr) {
    for (const auto& [name, value] : given->dict())
      out.variables.emplace_back(name.string(), value);
  }
  out.now = absl::FromCivil(absl::CivilSecond(2024, 7, 6, 15, 4, 9), absl::LocalTimeZone()) +
            absl::Microseconds(1234);
  return out;
}

TEST(ChatTemplateTest, EqualsJinjaOnTheGoldens) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/testdata/chat_templates/goldens.json");
  const std::string json(std::istreambuf_iterator<char>(file), {});
  const auto goldens = ReadJsonValue(json, "goldens.json", JsonLimits());
  ASSERT_TRUE(goldens.ok()) << goldens.status();
  const jinja::List& chats = goldens->dict().Find("chats")->list();
  const jinja::List& sources = goldens->dict().Find("sources")->list();
  const jinja::List& cases = goldens->dict().Find("cases")->list();
  ASSERT_GT(cases.size(), 1000u);
  for (const jinja::Value& golden : cases) {
    const std::string &name = golden.list()[0].string(), &outcome = golden.list()[3].string();
    const std::string& source = sources[*golden.list()[1].AsInt()].string();
    const auto text = ParseAndRender(source, GoldenChat(chats[*golden.list()[2].AsInt()]));
    SCOPED_TRACE(name + ", chat " + std::to_string(*golden.list()[2].AsInt()) + "\n" + source);
    if (outcome == "ok") {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, golden.list()[4].string());
    } else {
      EXPECT_FALSE(text.ok()) << *text;
      if (outcome == "raised") {
        EXPECT_EQ(text.status().message(), "chat template: " + golden.list()[4].string());
      }
    }
  }
}

TEST(ChatTemplateTest, NamesThePlaceOfWhatItRefuses) {
  EXPECT_EQ(ErrorOf("a\n  {% include 'x' %}"),
            "chat template: line 2, column 6: block 'include' is not supported");
  EXPECT_THAT(ErrorOf("{% extends 'x' %}"), HasSubstr("'extends'"));
  EXPECT_THAT(ErrorOf("{{ messages | wordwrap }}"), HasSubstr("filter 'wordwrap'"));
  EXPECT_THAT(ErrorOf("{{ messages is prime }}"), HasSubstr("test 'prime'"));
  EXPECT_THAT(ErrorOf("{{ 'x'.encode() }}"), HasSubstr("'encode'"));
  EXPECT_THAT(ErrorOf("{{ [].append(1) }}"), HasSubstr("'append'"));
  EXPECT_THAT(ErrorOf("{{ cycler(1) }}"), HasSubstr("'cycler'"));
  EXPECT_EQ(ErrorOf("{{ messages\n[0]\n  .nothing.name }}"),
            "chat template: line 3, column 12: undefined 'nothing' has no attribute 'name'");
}

// As in jinja2, what stands in a branch that is not taken may be unknown.
TEST(ChatTemplateTest, RefusesUnknownFiltersOnlyWhereTheyAreReached) {
  EXPECT_EQ(ParseAndRender("{% if false %}{{ 1|nope }}{% endif %}ok").value(), "ok");
  EXPECT_EQ(ParseAndRender("{{ 1|nope if false else 'ok' }}").value(), "ok");
  EXPECT_FALSE(ChatTemplate::Parse("{{ 1|nope }}", {}).ok());
  EXPECT_FALSE(ChatTemplate::Parse("{% for x in [] %}{{ 1|nope }}{% endfor %}", {}).ok());
  EXPECT_THAT(ErrorOf("{% if true %}{{ 1|nope }}{% endif %}"), HasSubstr("filter 'nope'"));
}

TEST(ChatTemplateTest, TellsTheTimeOfTheInput) {
  ChatInput chat = Chat("Hello");
  chat.now = absl::FromCivil(absl::CivilDay(2031, 2, 3), absl::LocalTimeZone());
  EXPECT_EQ(ParseAndRender("{{ strftime_now('%d %b %Y') }}", chat).value(), "03 Feb 2031");
}

TEST(ChatTemplateTest, FurtherVariablesReplaceTheOthers) {
  ChatInput chat = Chat("Hello");
  chat.variables = {{"enable_thinking", jinja::Value::Of(false)},
                    {"bos_token", jinja::Value::Of("<b>")}};
  EXPECT_EQ(ParseAndRender("{{ bos_token }}{{ enable_thinking }}{{ eos_token }}", chat).value(),
            "<b>False</s>");
}

TEST(ChatTemplateTest, ContinuesTheFinalMessage) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>{% endfor %}";
  ChatInput chat = Chat("Hello");
  chat.continue_final_message = true;
  chat.messages.push_back(TextMessage("assistant", "Hello, I am "));
  EXPECT_EQ(ParseAndRender(source, chat).value(), "<user>Hello<end><assistant>Hello, I am");
  // White space that the template prints stays.
  EXPECT_EQ(ParseAndRender("{{ messages[1].content }}<end>", chat).value(), "Hello, I am ");
  EXPECT_THAT(std::string(ParseAndRender("none", chat).status().message()),
              HasSubstr("does not print the last message"));
}

TEST(ChatTemplateTest, ReturnsTheMessageThatTheTemplateRaises) {
  const auto text = ParseAndRender("{{ raise_exception('no ' ~ messages[0].role) }}");
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(text.status().message(), "chat template: no user");
}

TEST(ChatTemplateTest, CannotAccessTheHost) {
  // The attributes that escape Python's sandbox do not exist here.
  EXPECT_EQ(ParseAndRender("{{ ''.__class__ is defined }}").value(), "False");
  EXPECT_THAT(ErrorOf("{{ ''.__class__.__mro__ }}"), HasSubstr("__mro__"));
}

TEST(ChatTemplateTest, BoundsNesting) {
  const auto nested = [](int depth, const std::string& open, const std::string& close) {
    std::string source;
    for (int i = 0; i < depth; ++i) source += open;
    if (!open.starts_with(' ') && !open.starts_with('|')) source += "1";
    for (int i = 0; i < depth; ++i) source += close;
    return source;
  };
  EXPECT_TRUE(ParseAndRender("{{ " + nested(30, "(", ")") + " }}").ok());
  for (const int depth : {70, 20'000}) {
    EXPECT_THAT(ErrorOf("{{ " + nested(depth, "(", ")") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ErrorOf("{{ " + nested(depth, "[", "]") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ErrorOf("{{ " + nested(depth, "-", "") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ErrorOf("{{ " + nested(depth, "not ", "") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ErrorOf("{{ 1" + nested(depth, " - 1", "") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ErrorOf("{{ 1" + nested(depth, "|abs", "") + " }}"), HasSubstr("deeper than 64"));
  }
  EXPECT_THAT(ErrorOf(nested(70, "{% if 1 %}", "{% endif %}")), HasSubstr("deeper than 64"));
  EXPECT_THAT(ErrorOf("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("macros called deeper"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(x=[]) %}{% for i in range(100) %}"
                      "{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(ErrorOf("{% set ns = namespace() %}{% set ns.x = ns %}"), HasSubstr("namespace"));
  EXPECT_THAT(ErrorOf("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("called deeper"));
  const std::string deep = "{% macro f(n) %}" + nested(20, "{% if 1 %}", "") + "{{ [[[f(n)]]] }}" +
                           nested(20, "", "{% endif %}") + "{% endmacro %}{{ f(1) }}";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("deep"));
}

TEST(ChatTemplateTest, BoundsWork) {
  EXPECT_THAT(ErrorOf("{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(9) %}"
                      "{{ k }}{% endfor %}{% endfor %}{% endfor %}"),
              ::testing::AnyOf(HasSubstr("steps"), HasSubstr("ms"), HasSubstr("bytes")));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(40) %}"
                      "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}"),
              ::testing::AnyOf(HasSubstr("bytes of text"), HasSubstr("ms")));
  EXPECT_THAT(ErrorOf("{% set ns = namespace(l=[1]) %}{% for i in range(40) %}"
                      "{% set ns.l = ns.l + ns.l %}{% endfor %}"),
              ::testing::AnyOf(HasSubstr("steps"), HasSubstr("ms")));
  EXPECT_THAT(ErrorOf("{{ 'x' * 5000000 }}"), HasSubstr("bytes of text"));
  EXPECT_THAT(ErrorOf("{{ range(1000000) }}"), HasSubstr("range"));
  EXPECT_THAT(ErrorOf("{{ 9999999999 * 9999999999 }}"), HasSubstr("integer out of range"));
  EXPECT_THAT(ErrorOf("{{ 10 ** 100 }}"), HasSubstr("integer out of range"));
  EXPECT_THAT(ErrorOf(std::string(300 << 10, 'x')), HasSubstr("limit"));
}

// Containers that hold the same part many times are small in memory and large in print.
TEST(ChatTemplateTest, BoundsSharedParts) {
  const std::string shared =
      "{% set ns = namespace(x=['abc']) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}";
  for (const char* use : {"{{ ns.x }}", "{{ ns.x|tojson }}", "{{ ns.x ~ '' }}", "{{ ns.x|string }}",
                          "{{ ns.x == [ns.x[0], ns.x[1]] }}", "{{ [ns.x]|join }}",
                          "{{ '%s' % [ns.x] }}", "{{ '{}'.format(ns.x) }}", "{{ [ns.x]|sort }}",
                          "{{ ns.x in [ns.x] }}", "{{ [ns.x]|map('string')|list }}"}) {
    EXPECT_THAT(ErrorOf(shared + use), ::testing::AnyOf(HasSubstr("steps"), HasSubstr("ms")))
        << use;
  }
}

TEST(ChatTemplateTest, BoundsTextThatGrows) {
  for (const char* source :
       {"{{ ('x' * 100000).replace('x', 'y' * 1000) }}",
        "{{ ('x' * 2000)|replace('', 'y' * 9999) }}", "{{ ('y' * 10000).join('x' * 1000) }}",
        "{{ (['x'] * 10000)|join('y' * 10000) }}", "{{ '%999999999d' % 1 }}",
        "{{ '%.999999999f' % 1.5 }}", "{{ '{:>999999999}'.format(1) }}",
        "{{ 'x'.center(999999999) }}", "{{ 'x'.zfill(999999999) }}", "{{ [0] * 999999999 }}",
        "{{ ('\n' * 100000)|indent('x' * 100000, blank=true) }}",
        "{{ [1]|batch(999999999, 1)|list }}", "{{ [1]|slice(999999999)|list }}",
        "{{ strftime_now('%c' * 9999) }}", "{{ range(10 ** 9) }}", "{{ 'ab' * 10 ** 18 }}"}) {
    ErrorOf(source);
  }
}

TEST(ChatTemplateTest, RendersLongMessages) {
  const std::string content(3 << 20, 'x');
  const auto text = ParseAndRender("{{ '[' + messages[0].content + ']' }}", Chat(content));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), content.size() + 2);
  EXPECT_FALSE(ParseAndRender("{{ messages[0].content }}", Chat(std::string(5 << 20, 'x'))).ok());
}

TEST(ChatTemplateTest, RefusesInvalidUtf8) { EXPECT_THAT(ErrorOf("\xFF"), HasSubstr("UTF-8")); }

}  // namespace
}  // namespace quire
