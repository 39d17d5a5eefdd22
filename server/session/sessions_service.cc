// The methods of quire.v1.Sessions that have one request and one answer; the streaming ones start
// here.
#include "server/session/sessions_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "quire/v1/sessions.pb.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/session/session_call.h"
#include "server/session/session_transfer.h"
#include "server/session/session_watch.h"

namespace quire {
namespace {

constexpr uint32_t kDefaultPage = 100;
constexpr uint32_t kMaxPage = 1000;

using Decoded = absl::StatusOr<SessionOperation>;

template <typename Request>
void EncodeOne(const Request&, const std::vector<SessionInfo>& found, int64_t now_ns,
               v1::Session* session) {
  EncodeSession(found.front(), now_ns, session);
}

Decoded Create(const SessionResources& resources, const v1::CreateSessionRequest& request) {
  RETURN_IF_ERROR(resources.drain.CheckAccepts());
  ASSIGN_OR_RETURN(const SessionName name,
                   DecodeNewName("session_id", request.has_session_id(), request.session_id()));
  RETURN_IF_ERROR(CheckOptions(request.options(), resources.max_ttl_seconds()));
  return SessionOperation{.name = name,
                          .action = SessionOperation::Create{DecodeOptions(request.options())}};
}

uint32_t PageOf(const v1::ListSessionsRequest& request) {
  return request.has_page_size() ? request.page_size() : kDefaultPage;
}

Decoded List(const SessionResources&, const v1::ListSessionsRequest& request) {
  const uint32_t page = PageOf(request);
  if (page < 1 || page > kMaxPage) {
    return InvalidField("page_size", "must be between 1 and 1000, not " + std::to_string(page));
  }
  if (request.has_after()) RETURN_IF_ERROR(CheckName("after", request.after()));
  // One more, to know whether there is another page.
  return SessionOperation{.name = request.after(),
                          .action = SessionOperation::List{static_cast<int32_t>(page) + 1}};
}

void EncodeList(const v1::ListSessionsRequest& request, const std::vector<SessionInfo>& found,
                int64_t now_ns, v1::ListSessionsResponse* response) {
  const size_t page = PageOf(request);
  for (size_t i = 0; i < std::min(found.size(), page); ++i) {
    EncodeSession(found[i], now_ns, response->add_sessions());
  }
  if (found.size() > page) response->set_next_after(found[page - 1].name);
}

Decoded Fork(const SessionResources& resources, const v1::ForkSessionRequest& request) {
  RETURN_IF_ERROR(resources.drain.CheckAccepts());
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  SessionOperation::Fork fork;
  ASSIGN_OR_RETURN(fork.new_name, DecodeNewName("new_session_id", request.has_new_session_id(),
                                                request.new_session_id()));
  if (request.has_position()) fork.position = request.position();
  return SessionOperation{.name = request.session_id(), .action = fork};
}

Decoded Truncate(const SessionResources&, const v1::TruncateSessionRequest& request) {
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  if (!request.has_position()) return InvalidField("position", "missing");
  return SessionOperation{.name = request.session_id(),
                          .action = SessionOperation::Truncate{request.position()}};
}

Decoded Touch(const SessionResources& resources, const v1::TouchSessionRequest& request) {
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  RETURN_IF_ERROR(CheckOptions(request.options(), resources.max_ttl_seconds()));
  return SessionOperation{.name = request.session_id(), .action = DecodeTouch(request.options())};
}

// Decodes a call that names a session and has no other argument.
template <typename Request, typename Action>
Decoded Plain(const SessionResources&, const Request& request) {
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  return SessionOperation{.name = request.session_id(), .action = Action()};
}

// Registers a call that answers with the session it names.
template <typename Request>
void AddOne(RawService* service, SessionResources* resources, const char* path,
            Decoded (*decode)(const SessionResources&, const Request&), const char* field = "") {
  service->Add(
      path, MakeSessionCall<Request, v1::Session>(
                resources, path, field,
                [resources, decode](const Request& request) { return decode(*resources, request); },
                EncodeOne<Request>));
}

void AddStreams(RawService* service, SessionResources* resources) {
  service->Add("/quire.v1.Sessions/Watch",
               RawService::ServerStreaming(
                   [resources](const IncomingCall& call, const grpc::ByteBuffer* request) {
                     return StartWatch(resources, call, request);
                   }));
  service->Add("/quire.v1.Sessions/Export",
               RawService::ServerStreaming(
                   [resources](const IncomingCall& call, const grpc::ByteBuffer* request) {
                     return StartExport(resources, call, request);
                   }));
  service->Add("/quire.v1.Sessions/Import",
               RawService::ClientStreaming(
                   [resources](const IncomingCall& call, grpc::ByteBuffer* response) {
                     return StartImport(resources, call, response);
                   }));
}

}  // namespace

std::unique_ptr<RawService> MakeSessionsService(SessionResources* resources) {
  auto service = std::make_unique<RawService>(&resources->calls.door);
  RawService* s = service.get();
  using Op = SessionOperation;
  AddOne(s, resources, "/quire.v1.Sessions/Create", Create);
  AddOne(s, resources, "/quire.v1.Sessions/Get", Plain<v1::GetSessionRequest, Op::Get>);
  AddOne(s, resources, "/quire.v1.Sessions/Fork", Fork, "position");
  AddOne(s, resources, "/quire.v1.Sessions/Truncate", Truncate, "position");
  AddOne(s, resources, "/quire.v1.Sessions/Touch", Touch);
  AddOne(s, resources, "/quire.v1.Sessions/Offload", Plain<v1::OffloadSessionRequest, Op::Offload>);
  AddOne(s, resources, "/quire.v1.Sessions/Prefetch",
         Plain<v1::PrefetchSessionRequest, Op::Prefetch>);
  AddOne(s, resources, "/quire.v1.Sessions/Pin", Plain<v1::PinSessionRequest, Op::Pin>);
  AddOne(s, resources, "/quire.v1.Sessions/Unpin", Plain<v1::UnpinSessionRequest, Op::Unpin>);
  const char* const list = "/quire.v1.Sessions/List";
  s->Add(list, MakeSessionCall<v1::ListSessionsRequest, v1::ListSessionsResponse>(
                   resources, list, "",
                   [resources](const v1::ListSessionsRequest& request) {
                     return List(*resources, request);
                   },
                   EncodeList));
  const char* const close = "/quire.v1.Sessions/Close";
  s->Add(close, MakeSessionCall<v1::CloseSessionRequest, v1::CloseSessionResponse>(
                    resources, close, "",
                    [resources](const v1::CloseSessionRequest& request) {
                      return Plain<v1::CloseSessionRequest, Op::Close>(*resources, request);
                    },
                    [](const v1::CloseSessionRequest&, const std::vector<SessionInfo>&, int64_t,
                       v1::CloseSessionResponse*) {}));
  AddStreams(s, resources);
  return service;
}

}  // namespace quire
