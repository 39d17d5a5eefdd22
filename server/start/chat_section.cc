// Renders short chats with the template that a start takes.
#include "server/start/chat_section.h"

#include <string>

#include "server/text/template/chat_templates.h"

namespace quire {
namespace {

constexpr size_t kMostShown = 240;  // bytes of a prompt

}  // namespace

CheckSection DescribeChatTemplate(const CheckedModel& model, CheckReport& report) {
  CheckSection section{.title = "Chat template"};
  const std::string directory = TextDirectory(model.settings);
  const auto without = [&](const std::string& why) {
    section.Add("template", "none: chat requests are refused");
    report.warnings.push_back("chat requests will be refused: " + why);
    return section;
  };
  if (directory.empty()) return without("there is no tokenizer");
  const std::string& file = model.settings.server.chat_template;
  const auto templates =
      file.empty() ? ChatTemplates::Load(directory) : ChatTemplates::LoadFile(file, directory);
  if (!templates.ok()) {
    section.Add("template", "refused");
    report.Refuse(StartStage::kText, ExitCode::kModel, templates.status());
    return section;
  }
  const auto chosen = templates->Choose("", false);
  if (!chosen.ok()) return without(std::string(chosen.status().message()));
  if (!file.empty()) section.Add("file", file);
  section.Add("template", "parsed");
  const jinja::Value user = TextMessage("user", "Hello");
  const auto add = [&](const char* what, ChatInput chat) {
    const auto rendered = (*chosen)->Render(chat);
    section.Add(what, rendered.ok() ? QuotedText(*rendered, kMostShown)
                                    : std::string(rendered.status().message()));
  };
  add("system and user", {.messages = {TextMessage("system", "Be brief."), user}});
  add("user, assistant",
      {.messages = {user, TextMessage("assistant", "Hi.")}, .add_generation_prompt = false});
  return section;
}

}  // namespace quire
