// The loop of a talk: commands, turns, and the transcript from which a later run continues.
#include "clients/cpp/chat/chat.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "clients/cpp/call/chat_request.h"
#include "clients/cpp/call/conversation.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/chat/line_reader.h"
#include "clients/cpp/chat/transcript.h"

namespace quire::cli {
namespace {

constexpr char kHelp[] =
    "/new   forget the messages and begin anew\n"
    "/quit  end the talk, as ctrl-D does\n"
    "/help  this list\n"
    "ctrl-C ends an answer; the arrow keys edit the line and go through earlier ones.\n";

// "/word" alone; a path or a sentence that begins with a slash is a message.
bool IsCommand(const std::string& text) {
  return text.size() > 1 && text[0] == '/' && text.find_first_of(" /", 1) == std::string::npos;
}

class Chat {
 public:
  Chat(const Invocation& line, const v1::ChatMessages& chat, Connection& connection,
       Terminal& terminal, Interrupt& interrupt)
      : line_(line),
        connection_(connection),
        terminal_(terminal),
        interrupt_(interrupt),
        transcript_(terminal.state_folder, terminal.server, line.generate.session.value_or("")),
        turn_terminal_{terminal.in, terminal.out, errors_},
        conversation_(line, chat, connection, turn_terminal_) {}

  int Run() {
    if (line_.generate.session) {
      if (const int code = TakeUp(); code != kExitOk) return code;
    }
    const std::unique_ptr<LineReader> reader = MakeReader();
    interrupt_.set_survivable(terminal_.typed);
    for (std::string text;;) {
      // A ctrl-C that came after the answer's end does not end the next one.
      if (terminal_.typed) interrupt_.Reset();
      const LineReader::Outcome outcome = reader->Read(&text);
      if (outcome == LineReader::Outcome::kEnd) return kExitOk;
      if (outcome == LineReader::Outcome::kInterrupted || text.empty()) continue;
      if (IsCommand(text)) {
        if (text == "/quit" || text == "/exit") return kExitOk;
        Command(text);
        continue;
      }
      const int code = Turn(text);
      if (code != kExitOk && !terminal_.typed) return code;
    }
  }

 private:
  std::unique_ptr<LineReader> MakeReader() {
    std::unique_ptr<LineReader> reader;
    if (terminal_.console) reader = EditLines("> ", HistoryFile());
    return reader != nullptr ? std::move(reader) : ReadStream(terminal_.in);
  }

  std::string HistoryFile() const {
    if (terminal_.state_folder.empty()) return "";
    std::error_code error;
    std::filesystem::create_directories(terminal_.state_folder, error);
    chmod(terminal_.state_folder.c_str(), 0700);
    return error ? "" : terminal_.state_folder + "/chat_history";
  }

  void Command(const std::string& text) {
    if (text == "/help") {
      terminal_.err << kHelp << std::flush;
    } else if (text == "/new") {
      conversation_.Forget();
      terminal_.err << "a new talk begins" << std::endl;
    } else {
      terminal_.err << "no command " << text << "; /help lists them" << std::endl;
    }
  }

  int Turn(const std::string& text) {
    errors_.str("");
    const int code = conversation_.Turn(text);
    const bool interrupted = interrupt_.raised();
    if (interrupted && terminal_.typed) {
      interrupt_.Reset();
      conversation_.KeepPart();
      terminal_.err << "[interrupted]" << std::endl;
      AwaitEndOfTurn();
    } else {
      terminal_.err << errors_.str() << std::flush;
    }
    if (code == kExitOk || interrupted) Save();
    return code;
  }

  void Save() {
    if (!line_.generate.session || conversation_.history().messages().empty()) return;
    transcript_.Save({conversation_.history(), conversation_.position().value_or(0)});
  }

  // After ctrl-C the server may run the turn a little longer, and may have ended it well before it
  // heard of ctrl-C. The next turn and a later run need the session free, and its true position.
  void AwaitEndOfTurn() {
    if (!line_.generate.session) return;
    v1::WatchSessionRequest request;
    request.set_session_id(*line_.generate.session);
    v1::Session session;
    bool ended = false;
    connection_.Run([&](grpc::ClientContext* context) {
      const auto changes = connection_.sessions().Watch(context, request);
      while (!ended && changes->Read(&session)) {
        ended = session.state() != v1::SESSION_STATE_ACTIVE;
      }
      context->TryCancel();
      return changes->Finish();
    });
    if (ended) conversation_.Resume(conversation_.history(), session.position());
  }

  // The number of tokens that the server's session has, 0 when there is none.
  grpc::Status Position(uint32_t* position) {
    v1::GetSessionRequest request;
    request.set_session_id(*line_.generate.session);
    v1::Session session;
    const grpc::Status status = connection_.Run([&](grpc::ClientContext* context) {
      return connection_.sessions().Get(context, request, &session);
    });
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) return grpc::Status::OK;
    *position = session.position();
    return status;
  }

  // Goes on where the session was.
  int TakeUp() {
    uint32_t position = 0;
    const grpc::Status status = Position(&position);
    if (!status.ok()) return Report(status, terminal_.err);
    const std::optional<Transcript::Content> kept = transcript_.Load();
    const std::string session = "session '" + *line_.generate.session + "'";
    const std::string way_out =
        "; choose another name, or `quire session close " + *line_.generate.session + "`";
    if (position > 0 && !kept) {
      return ReportLocal(
          absl::StrCat(session, " has ", position,
                       " tokens, but no chat on this machine wrote its messages", way_out),
          terminal_.err);
    }
    if (position > 0 && kept->position != position) {
      return ReportLocal(absl::StrCat(session, " has ", position, " tokens, but ", kept->position,
                                      " after the last chat on this machine", way_out),
                         terminal_.err);
    }
    conversation_.Resume(kept ? kept->messages : v1::ChatMessages(), position);
    if (!kept || line_.generate.quiet) return kExitOk;
    terminal_.err << "going on with " << session << ": " << kept->messages.messages_size()
                  << " messages, " << position << " tokens on the server" << std::endl;
    return kExitOk;
  }

  const Invocation& line_;
  Connection& connection_;
  Terminal& terminal_;
  Interrupt& interrupt_;
  const Transcript transcript_;
  std::ostringstream errors_;  // of one turn: dropped when ctrl-C ended it
  Terminal turn_terminal_;
  Conversation conversation_;
};

}  // namespace

int RunChat(const Invocation& line, Connection& connection, Terminal& terminal,
            Interrupt& interrupt) {
  const absl::StatusOr<v1::ChatMessages> chat = ReadChat(line.generate.prompt);
  if (!chat.ok()) return ReportMistake(chat.status(), terminal.err);
  return Chat(line, *chat, connection, terminal, interrupt).Run();
}

}  // namespace quire::cli
