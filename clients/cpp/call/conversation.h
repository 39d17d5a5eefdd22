// Conversation: the turns of one talk, each sent with the messages or position it continues from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "clients/cpp/call/answer.h"
#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// A chat sends all its messages with each turn; a text in a session sends only the new text. One
// thread.
class Conversation {
 public:
  // `chat` is that of ReadChat, for the first turn. All outlive it.
  Conversation(const Invocation& line, const v1::ChatMessages& chat, Connection& connection,
               Terminal& terminal);

  // Takes up a chat where it was: its messages, and the position of its session.
  void Resume(v1::ChatMessages history, std::optional<uint32_t> position);
  // Drops the messages. The next turn keeps those tokens of the session that still agree.
  void Forget() { history_.Clear(); }

  // Sends `text` as the next turn and prints the answer. Returns the exit code. After a turn that
  // failed the conversation is as it was before.
  int Turn(const std::string& text);
  // Keeps the message and the part of the answer that arrived in the turn that just failed.
  void KeepPart();

  const v1::ChatMessages& history() const { return history_; }
  std::optional<uint32_t> position() const { return position_; }

 private:
  void JoinHistory(v1::GenerateRequest* request);
  void Remember(const v1::ChatMessages& asked, const Answer& answer);

  const Invocation& line_;
  const v1::ChatMessages& chat_;
  Terminal& terminal_;
  AnswerPrinter printer_;
  std::optional<uint32_t> position_;  // of the session, when known
  v1::ChatMessages history_;          // of a chat
  v1::ChatMessages asked_;            // by the last turn
  Answer part_;                       // of the answer to it
};

}  // namespace quire::cli
