// The methods of quire.v1.Sessions that have one request and one answer; the streaming ones start
// here.
#include "server/session/sessions_service.h"

#include <algorithm>
#include <optional>
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

using Found = absl::StatusOr<std::vector<SessionInfo>>;

Found One(const absl::StatusOr<SessionInfo>& info, const std::string& field = "") {
  if (!info.ok()) return FromStore(info.status(), field);
  return std::vector<SessionInfo>{*info};
}

template <typename Request>
void EncodeOne(const Request&, const std::vector<SessionInfo>& found, int64_t now_ns,
               v1::Session* session) {
  EncodeSession(found.front(), now_ns, session);
}

absl::StatusOr<SessionAsk> Create(const StreamHost& host, const v1::CreateSessionRequest& request,
                                  TenantId tenant) {
  RETURN_IF_ERROR(CheckTakesSessions(host));
  ASSIGN_OR_RETURN(const SessionName name,
                   DecodeNewName("session_id", request.has_session_id(), request.session_id()));
  RETURN_IF_ERROR(CheckOptions(request.options(), MaxTtlSeconds(host)));
  const SessionOptions options = Overlay(request.options(), {});
  return [=](SessionStore& sessions, int64_t now_ns) {
    return One(sessions.Create(tenant, name, options, now_ns));
  };
}

uint32_t PageOf(const v1::ListSessionsRequest& request) {
  return request.has_page_size() ? request.page_size() : kDefaultPage;
}

absl::StatusOr<SessionAsk> List(const v1::ListSessionsRequest& request, TenantId tenant) {
  const uint32_t page = PageOf(request);
  if (page < 1 || page > kMaxPage) {
    return InvalidField("page_size", "must be between 1 and 1000, not " + std::to_string(page));
  }
  if (request.has_after()) RETURN_IF_ERROR(CheckName("after", request.after()));
  // One more, to know whether there is another page.
  return
      [tenant, after = request.after(), limit = static_cast<int32_t>(page) + 1](
          SessionStore& sessions, int64_t) -> Found { return sessions.List(tenant, after, limit); };
}

void EncodeList(const v1::ListSessionsRequest& request, const std::vector<SessionInfo>& found,
                int64_t now_ns, v1::ListSessionsResponse* response) {
  const size_t page = PageOf(request);
  for (size_t i = 0; i < std::min(found.size(), page); ++i) {
    EncodeSession(found[i], now_ns, response->add_sessions());
  }
  if (found.size() > page) response->set_next_after(found[page - 1].name);
}

absl::StatusOr<SessionAsk> Fork(const StreamHost& host, const v1::ForkSessionRequest& request,
                                TenantId tenant) {
  RETURN_IF_ERROR(CheckTakesSessions(host));
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  ASSIGN_OR_RETURN(
      const SessionName name,
      DecodeNewName("new_session_id", request.has_new_session_id(), request.new_session_id()));
  std::optional<int64_t> position;
  if (request.has_position()) position = request.position();
  return [=, from = request.session_id()](SessionStore& sessions, int64_t now_ns) {
    return One(sessions.Fork(tenant, from, name, position, now_ns), "position");
  };
}

absl::StatusOr<SessionAsk> Truncate(const StreamHost&, const v1::TruncateSessionRequest& request,
                                    TenantId tenant) {
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  if (!request.has_position()) return InvalidField("position", "missing");
  return [tenant, name = request.session_id(), position = request.position()](
             SessionStore& sessions, int64_t now_ns) {
    return One(sessions.Truncate(tenant, name, position, now_ns), "position");
  };
}

absl::StatusOr<SessionAsk> Touch(const StreamHost& host, const v1::TouchSessionRequest& request,
                                 TenantId tenant) {
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  RETURN_IF_ERROR(CheckOptions(request.options(), MaxTtlSeconds(host)));
  return [tenant, request](SessionStore& sessions, int64_t now_ns) -> Found {
    std::optional<SessionOptions> options;
    if (request.has_options()) {
      const auto session = sessions.Get(tenant, request.session_id());
      if (!session.ok()) return FromStore(session.status());
      options = Overlay(request.options(), session->options);
    }
    return One(sessions.Touch(tenant, request.session_id(), options, now_ns));
  };
}

absl::StatusOr<SessionAsk> Get(const StreamHost&, const v1::GetSessionRequest& request,
                               TenantId tenant) {
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  return [tenant, name = request.session_id()](SessionStore& sessions, int64_t) {
    return One(sessions.Get(tenant, name));
  };
}

absl::StatusOr<SessionAsk> Close(const v1::CloseSessionRequest& request, TenantId tenant) {
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  return [tenant, name = request.session_id()](SessionStore& sessions, int64_t) -> Found {
    const absl::Status closed = sessions.Close(tenant, name);
    if (!closed.ok()) return FromStore(closed);
    return std::vector<SessionInfo>();
  };
}

// Calls that name a session and want something done to it.
using Action = absl::StatusOr<SessionInfo> (SessionStore::*)(TenantId, const SessionName&, int64_t);

template <typename Request>
void AddAction(RawService* service, StreamHost* host, const char* path, Action action) {
  AddSessionCall<Request, v1::Session>(
      service, host, path,
      [action](const Request& request, TenantId tenant) -> absl::StatusOr<SessionAsk> {
        RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
        return
            [action, tenant, name = request.session_id()](SessionStore& sessions, int64_t now_ns) {
              return One((sessions.*action)(tenant, name, now_ns));
            };
      },
      EncodeOne<Request>);
}

// Registers a call answered with the session it is about.
template <typename Request>
void AddOne(RawService* service, StreamHost* host, const char* path,
            absl::StatusOr<SessionAsk> (*decode)(const StreamHost&, const Request&, TenantId)) {
  AddSessionCall<Request, v1::Session>(
      service, host, path,
      [host, decode](const Request& request, TenantId tenant) {
        return decode(*host, request, tenant);
      },
      EncodeOne<Request>);
}

void AddStreams(RawService* service, StreamHost* host) {
  service->Add("/quire.v1.Sessions/Watch",
               RawService::ServerStreaming(
                   [host](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
                     return StartWatch(host, context, request);
                   }));
  service->Add("/quire.v1.Sessions/Export",
               RawService::ServerStreaming(
                   [host](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
                     return StartExport(host, context, request);
                   }));
  service->Add("/quire.v1.Sessions/Import",
               RawService::ClientStreaming(
                   [host](grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
                     return StartImport(host, context, response);
                   }));
}

}  // namespace

std::unique_ptr<RawService> MakeSessionsService(StreamHost* host) {
  auto service = std::make_unique<RawService>();
  RawService* s = service.get();
  AddOne(s, host, "/quire.v1.Sessions/Create", Create);
  AddOne(s, host, "/quire.v1.Sessions/Get", Get);
  AddSessionCall<v1::ListSessionsRequest, v1::ListSessionsResponse>(
      s, host, "/quire.v1.Sessions/List", List, EncodeList);
  AddOne(s, host, "/quire.v1.Sessions/Fork", Fork);
  AddOne(s, host, "/quire.v1.Sessions/Truncate", Truncate);
  AddOne(s, host, "/quire.v1.Sessions/Touch", Touch);
  AddAction<v1::OffloadSessionRequest>(s, host, "/quire.v1.Sessions/Offload",
                                       &SessionStore::Offload);
  AddAction<v1::PrefetchSessionRequest>(s, host, "/quire.v1.Sessions/Prefetch",
                                        &SessionStore::Prefetch);
  AddAction<v1::PinSessionRequest>(s, host, "/quire.v1.Sessions/Pin", &SessionStore::Pin);
  AddAction<v1::UnpinSessionRequest>(s, host, "/quire.v1.Sessions/Unpin", &SessionStore::Unpin);
  AddSessionCall<v1::CloseSessionRequest, v1::CloseSessionResponse>(
      s, host, "/quire.v1.Sessions/Close", Close,
      [](const v1::CloseSessionRequest&, const std::vector<SessionInfo>&, int64_t,
         v1::CloseSessionResponse*) {});
  AddStreams(s, host);
  return service;
}

}  // namespace quire
