// Renders short chats with the template that a start takes.
#include "server/start/chat_section.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/text/template/chat_templates.h"

namespace quire {
namespace {

constexpr size_t kMostShown = 240;  // bytes of a prompt

// The file of the default template, and a line for each of the others.
void AddOrigins(const ChatTemplates& templates, CheckSection& section, CheckReport& report) {
  std::string others;
  for (const ChatTemplates::Origin& origin : templates.List()) {
    if (origin.name == "default") {
      section.Add("file", origin.file);
      continue;
    }
    const bool usable = origin.reason.empty();
    absl::StrAppend(&others, others.empty() ? "" : "\n", origin.name, " of ", origin.file,
                    usable ? "" : ": refused");
    if (usable) continue;
    report.warnings.push_back(absl::StrCat("chats with the template '", origin.name,
                                           "' will be refused: ", origin.reason));
  }
  if (!others.empty()) section.Add("others", others);
}

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
  AddOrigins(*templates, section, report);
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
