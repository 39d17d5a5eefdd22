// Messages go out whole: templates differ in what they put between them, so the server renders
// anew.
#include "clients/cpp/call/conversation.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "clients/cpp/call/generate_request.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/call/session_output.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

// The members of the assistant's message beside its content, as templates know them; empty: none.
std::string MembersOf(const Answer& answer) {
  Json members = Json::object();
  if (!answer.reasoning.empty()) members["reasoning_content"] = answer.reasoning;
  for (const v1::ToolCallDelta& call : answer.calls) {
    Json arguments = Json::parse(call.arguments(), nullptr, /*allow_exceptions=*/false);
    if (arguments.is_discarded()) arguments = call.arguments();
    members["tool_calls"].push_back(
        {{"id", call.id()},
         {"type", "function"},
         {"function", {{"name", call.name()}, {"arguments", arguments}}}});
  }
  return members.empty() ? "" : members.dump();
}

}  // namespace

Conversation::Conversation(const Invocation& line, const v1::ChatMessages& chat,
                           Connection& connection, Terminal& terminal)
    : line_(line),
      chat_(chat),
      terminal_(terminal),
      printer_(line, connection, terminal),
      position_(line.generate.expected_position) {}

void Conversation::Resume(v1::ChatMessages history, std::optional<uint32_t> position) {
  history_ = std::move(history);
  position_ = position;
}

int Conversation::Turn(const std::string& text) {
  auto request = ToRequest(line_.generate, line_.model, chat_, text);
  if (!request.ok()) return ReportMistake(request.status(), terminal_.err);
  if (request->has_chat()) JoinHistory(&*request);
  const bool in_session = line_.generate.session.has_value();
  if (in_session && position_) request->set_expected_position(*position_);
  Answer answer;
  const int code = printer_.Print(*request, &answer);
  asked_ = request->chat();
  part_ = answer;
  if (code != kExitOk) return code;
  if (in_session && !answer.finished.has_position()) {
    return ReportLocal("the server keeps no sessions: it answered as if none was asked for",
                       terminal_.err);
  }
  if (in_session) {
    position_ = answer.finished.position();
    if (!line_.json && !line_.generate.quiet) {
      terminal_.err << DescribeTurn(answer.finished, *line_.generate.session) << std::endl;
    }
  }
  if (request->has_chat()) Remember(asked_, answer);
  return kExitOk;
}

void Conversation::KeepPart() {
  if (!part_.text.empty()) Remember(asked_, part_);
}

// Only the first turn brings the messages of the command line. What it tells the template replaces
// what an earlier run told it; the rest stays, so that the prompt keeps its beginning. A chat
// begins with an empty session unless a position was given, so that tokens of another client are
// not cut away.
void Conversation::JoinHistory(v1::GenerateRequest* request) {
  if (!position_) position_ = 0;
  if (history_.messages().empty()) return;
  v1::ChatMessages whole = history_;
  v1::ChatMessages& said = *request->mutable_chat();
  *whole.add_messages() = *said.messages().rbegin();
  said.clear_messages();
  if (!said.tools().empty()) whole.clear_tools();
  if (!said.documents().empty()) whole.clear_documents();
  if (said.has_tool_choice()) whole.clear_tool_choice();
  if (said.has_template_time()) whole.clear_template_time();
  whole.MergeFrom(said);
  *request->mutable_chat() = std::move(whole);
}

void Conversation::Remember(const v1::ChatMessages& asked, const Answer& answer) {
  history_ = asked;
  // How the prompt ends is said for one turn.
  history_.clear_add_generation_prompt();
  history_.clear_continue_final_message();
  v1::ChatMessage* message = history_.add_messages();
  message->set_role("assistant");
  message->set_content(answer.text);
  const std::string members = MembersOf(answer);
  if (!members.empty()) message->set_members(members);
}

}  // namespace quire::cli
