// Renders short chats with the template that a start takes.
#include "server/start/chat_section.h"

#include <string>

#include "server/text/template/chat_template.h"

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
  const auto loaded = ChatTemplate::Load(directory);
  if (!loaded.ok()) return without(std::string(loaded.status().message()));
  const ChatTemplate& chat = **loaded;
  section.Add("template", "parsed");
  const auto rendered = chat.Render({{"system", "Be brief."}, {"user", "Hello"}}, true);
  const auto alone = chat.Render({{"user", "Hello"}, {"assistant", "Hi."}}, false);
  section.Add("system and user", rendered.ok() ? QuotedText(*rendered, kMostShown)
                                               : std::string(rendered.status().message()));
  section.Add("user, assistant",
              alone.ok() ? QuotedText(*alone, kMostShown) : std::string(alone.status().message()));
  return section;
}

}  // namespace quire
