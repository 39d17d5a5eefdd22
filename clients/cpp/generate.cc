// One prompt, or with a session one turn after the other, each where the last answer ended.
#include "clients/cpp/generate.h"

#include <istream>
#include <string>

#include "clients/cpp/call/answer.h"
#include "clients/cpp/call/chat_request.h"
#include "clients/cpp/call/conversation.h"
#include "clients/cpp/call/generate_request.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/chat/transcript.h"
#include "clients/cpp/tokens.h"

namespace quire::cli {
namespace {

int RunTurns(const Invocation& line, const v1::ChatMessages& chat, Connection& connection,
             Terminal& terminal) {
  Conversation conversation(line, chat, connection, terminal);
  const Transcript transcript(terminal.state_folder, terminal.server, *line.generate.session);
  const auto turn = [&](const std::string& text) {
    const int code = conversation.Turn(text);
    // For a later `quire chat`. A text leaves no messages.
    if (code == kExitOk && !conversation.history().messages().empty()) {
      transcript.Save({conversation.history(), conversation.position().value_or(0)});
    }
    return code;
  };
  const PromptFlags& prompt = line.generate.prompt;
  if (!TakesText(prompt)) return turn("");
  if (prompt.text) return turn(ReadText(prompt.text, terminal.in));
  for (std::string text;;) {
    if (terminal.typed) terminal.err << "> " << std::flush;
    if (!std::getline(terminal.in, text)) return kExitOk;
    if (text.empty()) continue;
    if (const int code = turn(text); code != kExitOk) return code;
  }
}

}  // namespace

int RunGenerate(const Invocation& line, Connection& connection, Terminal& terminal) {
  const PromptFlags& prompt = line.generate.prompt;
  const absl::StatusOr<v1::ChatMessages> chat = ReadChat(prompt);
  if (!chat.ok()) return ReportMistake(chat.status(), terminal.err);
  if (line.generate.session) return RunTurns(line, *chat, connection, terminal);
  const std::string text = TakesText(prompt) ? ReadText(prompt.text, terminal.in) : "";
  const auto request = ToRequest(line.generate, line.model, *chat, text);
  if (!request.ok()) return ReportMistake(request.status(), terminal.err);
  Answer answer;
  return AnswerPrinter(line, connection, terminal).Print(*request, &answer);
}

int RunAttach(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::AttachRequest request;
  request.set_request_id(*line.generate.request_id);
  request.set_after_tokens(line.attach_after.value_or(0));
  Answer answer;
  return AnswerPrinter(line, connection, terminal).PrintRest(request, &answer);
}

}  // namespace quire::cli
