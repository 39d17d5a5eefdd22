// The formats that the models' own templates show, and those that flags name.
#include "server/start/answer_formats.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace quire {
namespace {

std::string FamilyTemplate(const std::string& name) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/testdata/chat_templates/families/" + name + ".jinja",
                     std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string Found(const std::string& source, const ServerConfig& config = {}) {
  ServingModel model;
  model.chat_templates = ChatTemplates::Of(source, {}).value();
  FindAnswerFormats(config, &model);
  const auto name = [](const auto* format) {
    return std::string(format == nullptr ? "none" : format->name);
  };
  return name(model.reasoning_format) + " " + name(model.call_format);
}

TEST(AnswerFormatsTest, TemplatesShowThem) {
  EXPECT_EQ(Found(FamilyTemplate("qwen25")), "none hermes");
  EXPECT_EQ(Found(FamilyTemplate("qwen3")), "deepseek_r1 none");  // without its part on tools
  for (const char* name : {"chatml", "gemma", "llama3", "phi3", "zephyr"}) {
    EXPECT_EQ(Found(FamilyTemplate(name)), "none none") << name;
  }
}

TEST(AnswerFormatsTest, NamesAndNoneBeatThem) {
  const std::string source = FamilyTemplate("qwen25");
  ServerConfig config;
  config.reasoning_parser = "qwen3";
  config.tool_call_parser = "mistral";
  EXPECT_EQ(Found(source, config), "deepseek_r1 mistral");
  config.reasoning_parser = config.tool_call_parser = "none";
  EXPECT_EQ(Found(source, config), "none none");
}

}  // namespace
}  // namespace quire
