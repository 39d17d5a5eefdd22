// Renders short chats with the template that a start takes.
#include "server/start/chat_section.h"

#include <algorithm>
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
  const auto without = [&](const std::string& requests, const std::string& why) {
    section.Add("template", absl::StrCat("none: ", requests, " are refused"));
    report.warnings.push_back(absl::StrCat(requests, " will be refused: ", why));
    return section;
  };
  if (directory.empty()) return without("chat requests", "there is no tokenizer");
  const auto templates = ChatTemplates::LoadEither(model.settings.server.chat_template, directory);
  if (!templates.ok()) {
    section.Add("template", "refused");
    report.Refuse(StartStage::kText, ExitCode::kModel, templates.status());
    return section;
  }
  AddOrigins(*templates, section, report);
  const auto chosen = templates->Choose("", false);
  if (!chosen.ok()) {
    const bool named = std::ranges::any_of(
        templates->List(), [](const auto& origin) { return origin.reason.empty(); });
    return without(named ? "chat requests that name no template" : "chat requests",
                   std::string(chosen.status().message()));
  }
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
