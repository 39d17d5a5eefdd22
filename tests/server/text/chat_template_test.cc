// ChatTemplate: equal to jinja2 on every golden, refusals with a reason, and enforced limits.
// Covers server/text/template/jinja_access.cc, server/text/template/jinja_expression_parser.cc,
// server/text/template/jinja_filters.cc, server/text/template/jinja_format.cc,
// server/text/template/jinja_interpreter.cc, server/text/template/jinja_lexer.cc,
// server/text/template/jinja_methods.cc, server/text/template/jinja_operators.cc,
// server/text/template/jinja_parser.cc, server/text/template/jinja_text.cc,
// server/text/template/jinja_value.cc
#include "server/text/template/chat_template.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

const std::vector<ChatMessage> kHello = {{"user", "Hello"}};

std::string ParseError(const std::string& source) {
  auto parsed = ChatTemplate::Parse(source, "<s>", "</s>");
  EXPECT_FALSE(parsed.ok()) << source;
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

absl::StatusOr<std::string> ParseAndRender(const std::string& source,
                                           const std::vector<ChatMessage>& messages,
                                           bool add_generation_prompt = true) {
  auto parsed = ChatTemplate::Parse(source, "<s>", "</s>");
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->Render(messages, add_generation_prompt);
}

TEST(ChatTemplateTest, EqualsJinjaOnTheGoldens) {
  auto goldens = ReadJsonFile(QUIRE_SOURCE_DIR "/tests/testdata/chat_templates/goldens.json");
  ASSERT_TRUE(goldens.ok()) << goldens.status();
  ASSERT_GT(goldens->size(), 800u);
  for (const auto& golden : *goldens) {
    std::vector<ChatMessage> messages;
    for (const auto& message : golden["messages"]) {
      messages.push_back(
          {message["role"].get<std::string>(), message["content"].get<std::string>()});
    }
    const std::string source = golden["source"].get<std::string>();
    const auto text = ParseAndRender(source, messages, golden["add_generation_prompt"].get<bool>());
    const std::string name = golden["name"].get<std::string>();
    if (golden.contains("output")) {
      EXPECT_TRUE(text.ok()) << name << ": " << text.status() << "\n" << source;
      if (text.ok()) {
        EXPECT_EQ(*text, golden["output"].get<std::string>()) << name << "\n" << source;
      }
    } else {
      EXPECT_FALSE(text.ok()) << name << ": " << *text << "\n" << source;
      if (!text.ok() && golden.contains("raised")) {
        EXPECT_EQ(text.status().message(), "chat template: " + golden["raised"].get<std::string>());
      }
    }
  }
}

TEST(ChatTemplateTest, NamesUnsupportedConstructs) {
  EXPECT_EQ(ParseError("a\n{% include 'x' %}"),
            "chat template: line 2: block 'include' is not supported");
  EXPECT_THAT(ParseError("{% extends 'x' %}"), HasSubstr("'extends'"));
  EXPECT_THAT(ParseError("{{ messages | groupby('role') }}"), HasSubstr("filter 'groupby'"));
  EXPECT_THAT(ParseError("{{ messages is filter }}"), HasSubstr("test 'filter'"));
  EXPECT_THAT(ParseError("{{ 'x'.encode() }}"), HasSubstr("method 'encode'"));
  EXPECT_THAT(ParseError("{{ cycler(1) }}"), HasSubstr("function 'cycler'"));
  EXPECT_THAT(ParseError("{{ loop }}"), HasSubstr("'loop'"));
  EXPECT_THAT(ParseError("{{ '%s' % 1 }}"), HasSubstr("formatting"));
  EXPECT_THAT(ParseError("{% for m in messages recursive %}{% endfor %}"), HasSubstr("recursive"));
}

TEST(ChatTemplateTest, HasNoClock) {
  EXPECT_EQ(ParseAndRender("{{ strftime_now is defined }}", kHello).value(), "False");
  EXPECT_THAT(ParseError("{{ strftime_now('%Y') }}"), HasSubstr("'strftime_now'"));
}

TEST(ChatTemplateTest, ReturnsTheMessageThatTheTemplateRaises) {
  const auto text = ParseAndRender("{{ raise_exception('no ' ~ messages[0].role) }}", kHello);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(text.status().message(), "chat template: no user");
}

TEST(ChatTemplateTest, CannotAccessTheHost) {
  // The attributes that escape Python's sandbox do not exist here.
  EXPECT_EQ(ParseAndRender("{{ ''.__class__ is defined }}", kHello).value(), "False");
  EXPECT_THAT(ParseError("{{ ''.__class__.__mro__ }}"), HasSubstr("__mro__"));
}

TEST(ChatTemplateTest, BoundsNesting) {
  const auto nested = [](int depth, const std::string& open, const std::string& close) {
    std::string source;
    for (int i = 0; i < depth; ++i) source += open;
    if (!open.starts_with(' ') && !open.starts_with('|')) source += "1";
    for (int i = 0; i < depth; ++i) source += close;
    return source;
  };
  EXPECT_TRUE(ParseAndRender("{{ " + nested(30, "(", ")") + " }}", kHello).ok());
  for (const int depth : {70, 20'000}) {
    EXPECT_THAT(ParseError("{{ " + nested(depth, "(", ")") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ParseError("{{ " + nested(depth, "[", "]") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ParseError("{{ " + nested(depth, "-", "") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ParseError("{{ " + nested(depth, "not ", "") + " }}"), HasSubstr("deeper than 64"));
    EXPECT_THAT(ParseError("{{ 1" + nested(depth, " - 1", "") + " }}"),
                HasSubstr("deeper than 64"));
    EXPECT_THAT(ParseError("{{ 1" + nested(depth, "|abs", "") + " }}"),
                HasSubstr("deeper than 64"));
  }
  EXPECT_THAT(ParseError(nested(70, "{% if 1 %}", "{% endif %}")), HasSubstr("deeper than 64"));
  EXPECT_THAT(ParseError("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("macros called deeper"));
  EXPECT_THAT(ParseError("{% set ns = namespace(x=[]) %}{% for i in range(100) %}"
                         "{% set ns.x = [ns.x] %}{% endfor %}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(ParseError("{% set ns = namespace() %}{% set ns.x = ns %}"), HasSubstr("namespace"));
}

TEST(ChatTemplateTest, BoundsWork) {
  EXPECT_THAT(
      ParseError("{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(9) %}"
                 "{{ k }}{% endfor %}{% endfor %}{% endfor %}"),
      ::testing::AnyOf(HasSubstr("steps"), HasSubstr("ms"), HasSubstr("bytes")));
  EXPECT_THAT(ParseError("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(40) %}"
                         "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}"),
              ::testing::AnyOf(HasSubstr("bytes of text"), HasSubstr("ms")));
  EXPECT_THAT(ParseError("{% set ns = namespace(l=[1]) %}{% for i in range(40) %}"
                         "{% set ns.l = ns.l + ns.l %}{% endfor %}"),
              ::testing::AnyOf(HasSubstr("steps"), HasSubstr("ms")));
  EXPECT_THAT(ParseError("{{ 'x' * 5000000 }}"), HasSubstr("bytes of text"));
  EXPECT_THAT(ParseError("{{ range(1000000) }}"), HasSubstr("range"));
  EXPECT_THAT(ParseError("{{ 9999999999 * 9999999999 }}"), HasSubstr("integer out of range"));
  EXPECT_THAT(ParseError("{{ 10 ** 100 }}"), HasSubstr("integer out of range"));
  EXPECT_THAT(ParseError(std::string(300 << 10, 'x')), HasSubstr("limit"));
}

TEST(ChatTemplateTest, RendersLongMessages) {
  const std::string content(3 << 20, 'x');
  const auto text = ParseAndRender("{{ '[' + messages[0].content + ']' }}", {{"user", content}});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), content.size() + 2);
  EXPECT_FALSE(
      ParseAndRender("{{ messages[0].content }}", {{"user", std::string(5 << 20, 'x')}}).ok());
}

TEST(ChatTemplateTest, RefusesInvalidUtf8) {
  EXPECT_THAT(ParseError("\xFF"), HasSubstr("UTF-8"));
  const auto text = ParseAndRender("{{ messages[0].content }}", {{"user", "\xC3"}});
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("messages[0] is not valid UTF-8"));
}

class ChatTemplateLoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/chat_template_test_" + std::to_string(getpid());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  std::string dir_;
};

TEST_F(ChatTemplateLoadTest, ReadsTheConfigAndItsTokens) {
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>",
            "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"})");
  auto loaded = ChatTemplate::Load(dir_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Render(kHello, false).value(), "<b>Hello<e>");
}

TEST_F(ChatTemplateLoadTest, PrefersTheFile) {
  Write("tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": "config"})");
  Write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ((*ChatTemplate::Load(dir_))->Render(kHello, false).value(), "file <b>");
}

TEST_F(ChatTemplateLoadTest, UsesTheDefaultOfSeveral) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "{% x %}"},
                                                       {"name": "default", "template": "d"}]})");
  EXPECT_EQ((*ChatTemplate::Load(dir_))->Render(kHello, false).value(), "d");
}

TEST_F(ChatTemplateLoadTest, NamesMissingAndWrongParts) {
  EXPECT_EQ(ChatTemplate::Load(dir_).status().code(), absl::StatusCode::kNotFound);
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(ChatTemplate::Load(dir_).status().code(), absl::StatusCode::kNotFound);
  Write("tokenizer_config.json", R"({"chat_template": "{% include 'x' %}"})");
  const absl::Status status = ChatTemplate::Load(dir_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tokenizer_config.json: chat template: line 1"));
  Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(ChatTemplate::Load(dir_).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
