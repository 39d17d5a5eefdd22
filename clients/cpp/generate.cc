// One prompt, or with a session one turn after the other: what is typed goes on where the last
// answer ended.
#include "clients/cpp/generate.h"

#include <istream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/cpp/call/answer.h"
#include "clients/cpp/call/generate_request.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/call/session_output.h"
#include "clients/cpp/tokens.h"

namespace quire::cli {
namespace {

// Turns of one session. A chat sends its whole history each time; a text only what is new.
class Conversation {
 public:
  Conversation(const Invocation& line, Connection& connection, Terminal& terminal)
      : line_(line),
        terminal_(terminal),
        printer_(line, connection, terminal),
        position_(line.generate.expected_position) {}

  // Returns the exit code.
  int Turn(const std::string& text) {
    auto request = ToRequest(line_.generate, line_.model, text);
    if (!request.ok()) {
      terminal_.err << "quire: " << std::string(request.status().message()) << std::endl;
      return kExitUsage;
    }
    if (request->has_chat()) JoinHistory(&*request);
    if (position_) request->set_expected_position(*position_);
    Answer answer;
    const int code = printer_.Print(*request, &answer);
    if (code != kExitOk) return code;
    if (!answer.finished.has_position()) {
      return ReportLocal("the server keeps no sessions: it answered as if none was asked for",
                         terminal_.err);
    }
    position_ = answer.finished.position();
    if (!line_.json) {
      terminal_.err << DescribeTurn(answer.finished, *line_.generate.session) << std::endl;
    }
    if (request->has_chat()) Remember(request->chat(), answer.text);
    return kExitOk;
  }

 private:
  // Only the first turn brings the system's message. A history that is not ours must not be cut
  // away: a chat begins an empty session, unless a position was given.
  void JoinHistory(v1::GenerateRequest* request) {
    if (!position_) position_ = 0;
    if (history_.messages().empty()) return;
    v1::ChatMessages whole = history_;
    *whole.add_messages() = *request->chat().messages().rbegin();
    *request->mutable_chat() = std::move(whole);
  }

  void Remember(const v1::ChatMessages& asked, const std::string& answer) {
    history_ = asked;
    v1::ChatMessage* message = history_.add_messages();
    message->set_role("assistant");
    message->set_content(answer);
  }

  const Invocation& line_;
  Terminal& terminal_;
  AnswerPrinter printer_;
  std::optional<uint32_t> position_;  // of the session, when known
  v1::ChatMessages history_;          // of a chat
};

int RunTurns(const Invocation& line, Connection& connection, Terminal& terminal) {
  Conversation conversation(line, connection, terminal);
  const PromptFlags& prompt = line.generate.prompt;
  if (!prompt.token_ids.empty()) return conversation.Turn("");
  if (prompt.text) return conversation.Turn(ReadText(prompt.text, terminal.in));
  for (std::string text;;) {
    if (terminal.typed) terminal.err << "> " << std::flush;
    if (!std::getline(terminal.in, text)) return kExitOk;
    if (text.empty()) continue;
    const int code = conversation.Turn(text);
    if (code != kExitOk) return code;
  }
}

}  // namespace

int RunGenerate(const Invocation& line, Connection& connection, Terminal& terminal) {
  if (line.generate.session) return RunTurns(line, connection, terminal);
  const PromptFlags& prompt = line.generate.prompt;
  const std::string text = prompt.token_ids.empty() ? ReadText(prompt.text, terminal.in) : "";
  const auto request = ToRequest(line.generate, line.model, text);
  if (!request.ok()) {
    terminal.err << "quire: " << std::string(request.status().message()) << std::endl;
    return kExitUsage;
  }
  Answer answer;
  return AnswerPrinter(line, connection, terminal).Print(*request, &answer);
}

}  // namespace quire::cli
