// A name beats what the templates show.
#include "server/start/answer_formats.h"

#include <string_view>

#include "engine/base/log.h"
#include "server/answer_parts/call_format.h"
#include "server/answer_parts/reasoning_format.h"

namespace quire {

void FindAnswerFormats(const ServerConfig& config, ServingModel* model) {
  const auto mentions = [model](std::string_view text) {
    return model->chat_templates.Mention(text);
  };
  model->reasoning_format = config.reasoning_parser == "auto"
                                ? DetectReasoningFormat(mentions)
                                : FindReasoningFormat(config.reasoning_parser);
  model->call_format = config.tool_call_parser == "auto" ? DetectCallFormat(mentions)
                                                         : FindCallFormat(config.tool_call_parser);
  const auto name = [](const auto* format) { return format == nullptr ? "none" : format->name; };
  Log(Severity::kInfo, "how answers are read",
      {{"reasoning", name(model->reasoning_format)}, {"tool_calls", name(model->call_format)}});
}

}  // namespace quire
