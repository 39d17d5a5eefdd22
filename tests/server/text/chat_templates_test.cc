// ChatTemplates: the files of a checkpoint, which template a chat takes, and reasons of refusals.
#include "server/text/template/chat_templates.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

class ChatTemplatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/chat_templates_test_" + std::to_string(getpid());
    std::filesystem::create_directories(dir_ + "/additional_chat_templates");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  static std::string Text(const ChatTemplates& templates, const std::string& name = "",
                          bool has_tools = false) {
    const auto chosen = templates.Choose(name, has_tools);
    if (!chosen.ok()) return std::string(chosen.status().message());
    ChatInput chat;
    chat.messages.push_back(TextMessage("user", "Hello"));
    return (*chosen)->Render(chat).value();
  }
  std::string Loaded(const std::string& name = "", bool has_tools = false) const {
    return Text(ChatTemplates::Load(dir_), name, has_tools);
  }
  std::string dir_;
};

TEST_F(ChatTemplatesTest, ReadsTheConfigAndItsTokens) {
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": null,
            "chat_template":
                "{{ bos_token ~ messages[0].content ~ eos_token }}|{{ pad_token }}"})");
  EXPECT_EQ(Loaded(), "<b>Hello<e>|");
}

TEST_F(ChatTemplatesTest, PrefersTheFile) {
  Write("tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": "config"})");
  Write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(Loaded(), "file <b>");
}

TEST_F(ChatTemplatesTest, ReadsTheFileOfAProcessorLast) {
  Write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(Loaded(), "processor");
  Write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(Loaded(), "config");
}

TEST_F(ChatTemplatesTest, ChoosesByNameAndTools) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                                       {"name": "rag", "template": "r"},
                                                       {"name": "default", "template": "d"}]})");
  EXPECT_EQ(Loaded(), "d");
  EXPECT_EQ(Loaded("", /*has_tools=*/true), "t");
  EXPECT_EQ(Loaded("rag"), "r");
  EXPECT_EQ(Loaded("default", /*has_tools=*/true), "d");
  const auto unknown = ChatTemplates::Load(dir_).Choose("nope", false);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("only: default, rag, tool_use"));
}

TEST_F(ChatTemplatesTest, ReadsAdditionalFiles) {
  Write("chat_template.jinja", "d");
  Write("additional_chat_templates/tool_use.jinja", "t");
  Write("additional_chat_templates/notes.txt", "{% x %}");
  EXPECT_EQ(Loaded(), "d");
  EXPECT_EQ(Loaded("", /*has_tools=*/true), "t");
}

TEST_F(ChatTemplatesTest, RefusesOneTemplateAndServesTheOthers) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "{% x %}"},
                                                       {"name": "default", "template": "d"}]})");
  const ChatTemplates templates = ChatTemplates::Load(dir_);
  EXPECT_EQ(Text(templates), "d");
  const auto refused = templates.Choose("", /*has_tools=*/true);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("tokenizer_config.json: chat template: line 1, column 4: block 'x'"));
  EXPECT_FALSE(templates.Check().ok());
}

TEST_F(ChatTemplatesTest, ServesNoTemplateOfAListThatItRefuses) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"},
                                                       {"name": "rag"}]})");
  EXPECT_THAT(Loaded(), HasSubstr("neither a string nor a list"));
  EXPECT_FALSE(ChatTemplates::Load(dir_).Check().ok());
}

// In the folder of further templates there may be one more of the name "default".
TEST_F(ChatTemplatesTest, TheLastOfTwoFilesOfANameCounts) {
  Write("chat_template.jinja", "{% x %}");
  Write("additional_chat_templates/default.jinja", "d");
  EXPECT_EQ(Loaded(), "d");
  EXPECT_EQ(ChatTemplates::Load(dir_).List().front().reason, "");
  Write("chat_template.jinja", "d");
  Write("additional_chat_templates/default.jinja", "{% x %}");
  EXPECT_THAT(Loaded(), HasSubstr("block 'x'"));
}

TEST_F(ChatTemplatesTest, NamesMissingAndWrongParts) {
  EXPECT_TRUE(ChatTemplates::Load(dir_).empty());
  EXPECT_THAT(Loaded(), HasSubstr("has no chat template"));
  Write("tokenizer_config.json", "{}");
  EXPECT_TRUE(ChatTemplates::Load(dir_).empty());
  Write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(Loaded(), HasSubstr("neither a string nor a list"));
  Write("tokenizer_config.json", R"({"chat_template": })");
  EXPECT_THAT(Loaded(), HasSubstr("tokenizer_config.json: byte"));
}

TEST_F(ChatTemplatesTest, ChecksThatAChatRenders) {
  Write("tokenizer_config.json", R"({"chat_template": "{{ messages[0].content + 1 }}"})");
  EXPECT_THAT(std::string(ChatTemplates::Load(dir_).Check().message()), HasSubstr("line 1"));
  Write("tokenizer_config.json", R"({"chat_template": "{{ raise_exception('tools only') }}"})");
  EXPECT_TRUE(ChatTemplates::Load(dir_).Check().ok());
}

TEST_F(ChatTemplatesTest, SaysWhereEachCameFrom) {
  const auto listed = [](const ChatTemplates& templates) {
    std::string text;
    for (const auto& [name, file, reason] : templates.List()) {
      text += name + " " + std::filesystem::path(file).filename().string() +
              (reason.empty() ? "\n" : " refused\n");
    }
    return text;
  };
  EXPECT_EQ(listed(ChatTemplates::Load(dir_)), "");
  Write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(listed(ChatTemplates::Load(dir_)), "default chat_template.json\n");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "{% x %}"},
                                                       {"name": "default", "template": "d"}]})");
  EXPECT_EQ(listed(ChatTemplates::Load(dir_)),
            "default tokenizer_config.json\nrag tokenizer_config.json refused\n");
  Write("chat_template.jinja", "d");
  Write("additional_chat_templates/tool_use.jinja", "t");
  EXPECT_EQ(listed(ChatTemplates::Load(dir_)),
            "default chat_template.jinja\ntool_use tool_use.jinja\n");
  EXPECT_EQ(listed(ChatTemplates::LoadFile(dir_ + "/chat_template.jinja", dir_).value()),
            "default chat_template.jinja\n");
  Write("tokenizer_config.json", "{");
  EXPECT_EQ(listed(ChatTemplates::Load(dir_)), "default tokenizer_config.json refused\n");
}

TEST_F(ChatTemplatesTest, TakesAnotherFile) {
  Write("tokenizer_config.json", R"({"bos_token": "<b>", "chat_template": "config"})");
  Write("mine.jinja", "mine {{ bos_token }}");
  EXPECT_EQ(Text(ChatTemplates::LoadFile(dir_ + "/mine.jinja", dir_).value()), "mine <b>");
  Write("mine.jinja", "\n{% endfor %}");
  const absl::Status refused = ChatTemplates::LoadFile(dir_ + "/mine.jinja", dir_).status();
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("mine.jinja: chat template: line 2, column"));
  EXPECT_EQ(ChatTemplates::LoadFile(dir_ + "/none", dir_).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quire
