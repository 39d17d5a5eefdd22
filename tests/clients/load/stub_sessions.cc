// A map of names to numbers.
#include "tests/clients/load/stub_sessions.h"

#include "absl/strings/str_cat.h"

namespace quire::load {
namespace {

using grpc::StatusCode;

grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

grpc::Status StubSessions::BeginTurn(const v1::GenerateRequest& request, uint32_t* position) {
  std::lock_guard lock(mutex_);
  const std::string& name = request.session_id();
  if (!request.create_session() && !sessions_.contains(name)) {
    return {StatusCode::NOT_FOUND, absl::StrCat("no session ", name)};
  }
  Session& session = sessions_[name];
  if (session.busy) return {StatusCode::FAILED_PRECONDITION, "a turn is running"};
  if (request.has_expected_position() && request.expected_position() != session.position) {
    return {StatusCode::FAILED_PRECONDITION, absl::StrCat("the session has ", session.position)};
  }
  session.busy = true;
  *position = session.position + static_cast<uint32_t>(request.token_ids().ids_size());
  return grpc::Status::OK;
}

void StubSessions::EndTurn(const std::string& session, uint32_t position) {
  std::lock_guard lock(mutex_);
  sessions_[session] = {.position = position, .busy = false};
}

std::vector<std::string> StubSessions::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

std::map<std::string, uint32_t> StubSessions::positions() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, uint32_t> positions;
  for (const auto& [name, session] : sessions_) positions[name] = session.position;
  return positions;
}

grpc::ServerUnaryReactor* StubSessions::List(grpc::CallbackServerContext* context,
                                             const v1::ListSessionsRequest*,
                                             v1::ListSessionsResponse*) {
  return Reply(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* StubSessions::Fork(grpc::CallbackServerContext* context,
                                             const v1::ForkSessionRequest* request, v1::Session*) {
  std::lock_guard lock(mutex_);
  const auto from = sessions_.find(request->session_id());
  calls_.push_back(absl::StrCat("fork ", request->session_id(), " to ", request->new_session_id(),
                                " at ", request->position()));
  if (from == sessions_.end()) return Reply(context, {StatusCode::NOT_FOUND, "no session"});
  if (from->second.busy) return Reply(context, {StatusCode::FAILED_PRECONDITION, "busy"});
  if (request->position() > from->second.position) {
    return Reply(context, {StatusCode::INVALID_ARGUMENT, "beyond the end"});
  }
  sessions_[request->new_session_id()].position = request->position();
  return Reply(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* StubSessions::Close(grpc::CallbackServerContext* context,
                                              const v1::CloseSessionRequest* request,
                                              v1::CloseSessionResponse*) {
  std::lock_guard lock(mutex_);
  calls_.push_back(absl::StrCat("close ", request->session_id()));
  const auto found = sessions_.find(request->session_id());
  if (found == sessions_.end()) return Reply(context, {StatusCode::NOT_FOUND, "no session"});
  if (found->second.busy) return Reply(context, {StatusCode::FAILED_PRECONDITION, "busy"});
  sessions_.erase(found);
  return Reply(context, grpc::Status::OK);
}

}  // namespace quire::load
