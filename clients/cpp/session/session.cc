// A table of verbs. Most of them differ only in their request and method.
#include "clients/cpp/session/session.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "clients/cpp/call/generate_request.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/call/session_output.h"
#include "clients/cpp/session/session_file.h"
#include "clients/cpp/session/session_move.h"

namespace quire::cli {
namespace {

template <typename Request>
using Method = grpc::Status (v1::Sessions::Stub::*)(grpc::ClientContext*, const Request&,
                                                    v1::Session*);
using Verb = int (*)(const Invocation&, Connection&, Terminal&);

// As wide as the longest name, or as the column's own.
int NameWidth(size_t longest) { return static_cast<int>(std::max<size_t>(longest, 4)); }

// Calls the method that `request` is for and prints the session it answers with.
template <typename Request>
int Ask(const Invocation& line, Connection& connection, Terminal& terminal, Method<Request> method,
        const Request& request) {
  v1::Session session;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return (connection.sessions().*method)(context, request, &session);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(session, terminal.out);
  } else {
    PrintSession(session, terminal.out);
  }
  return kExitOk;
}

// A verb whose request holds only the session's name.
template <typename Request, Method<Request> method>
int AskByName(const Invocation& line, Connection& connection, Terminal& terminal) {
  Request request;
  request.set_session_id(*line.session.name);
  return Ask(line, connection, terminal, method, request);
}

int Create(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::CreateSessionRequest request;
  if (line.session.name) request.set_session_id(*line.session.name);
  if (const auto options = ToOptions(line.session)) *request.mutable_options() = *options;
  return Ask(line, connection, terminal, &v1::Sessions::Stub::Create, request);
}

int Touch(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::TouchSessionRequest request;
  request.set_session_id(*line.session.name);
  if (const auto options = ToOptions(line.session)) *request.mutable_options() = *options;
  return Ask(line, connection, terminal, &v1::Sessions::Stub::Touch, request);
}

int Fork(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::ForkSessionRequest request;
  request.set_session_id(*line.session.name);
  if (line.session.new_name) request.set_new_session_id(*line.session.new_name);
  if (line.session.position) request.set_position(*line.session.position);
  return Ask(line, connection, terminal, &v1::Sessions::Stub::Fork, request);
}

int Truncate(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::TruncateSessionRequest request;
  request.set_session_id(*line.session.name);
  request.set_position(*line.session.position);
  return Ask(line, connection, terminal, &v1::Sessions::Stub::Truncate, request);
}

int Close(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::CloseSessionRequest request;
  request.set_session_id(*line.session.name);
  v1::CloseSessionResponse response;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    return connection.sessions().Close(context, request, &response);
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(response, terminal.out);
  } else {
    terminal.out << "closed " << request.session_id() << "\n";
  }
  return kExitOk;
}

int List(const Invocation& line, Connection& connection, Terminal& terminal) {
  std::vector<v1::Session> sessions;
  v1::ListSessionsRequest request;
  v1::ListSessionsResponse page;
  do {
    const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
      return connection.sessions().List(context, request, &page);
    });
    if (!status.ok()) return Report(status, terminal.err);
    sessions.insert(sessions.end(), page.sessions().begin(), page.sessions().end());
    request.set_after(page.next_after());
  } while (page.has_next_after());
  if (line.json) {
    for (const v1::Session& session : sessions) PrintJson(session, terminal.out);
    return kExitOk;
  }
  size_t longest = 0;
  for (const v1::Session& session : sessions) {
    longest = std::max(longest, session.session_id().size());
  }
  PrintSessionHead(NameWidth(longest), terminal.out);
  for (const v1::Session& session : sessions) {
    PrintSessionRow(session, NameWidth(longest), terminal.out);
  }
  return kExitOk;
}

int Watch(const Invocation& line, Connection& connection, Terminal& terminal) {
  v1::WatchSessionRequest request;
  request.set_session_id(*line.session.name);
  const int width = NameWidth(request.session_id().size());
  bool head = !line.json;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    auto reader = connection.sessions().Watch(context, request);
    v1::Session session;
    while (reader->Read(&session)) {
      if (head) PrintSessionHead(width, terminal.out);
      head = false;
      if (line.json) {
        PrintJson(session, terminal.out);
      } else {
        PrintSessionRow(session, width, terminal.out);
      }
      terminal.out.flush();
      if (!terminal.out) context->TryCancel();
    }
    return reader->Finish();
  });
  if (!terminal.out) return ReportLocal("cannot write the output", terminal.err);
  return Report(status, terminal.err);
}

}  // namespace

int RunSession(const Invocation& line, Connection& connection, Terminal& terminal) {
  using Stub = v1::Sessions::Stub;
  static const std::map<std::string, Verb> kVerbs = {
      {"create", Create},
      {"get", AskByName<v1::GetSessionRequest, &Stub::Get>},
      {"list", List},
      {"fork", Fork},
      {"truncate", Truncate},
      {"touch", Touch},
      {"offload", AskByName<v1::OffloadSessionRequest, &Stub::Offload>},
      {"prefetch", AskByName<v1::PrefetchSessionRequest, &Stub::Prefetch>},
      {"pin", AskByName<v1::PinSessionRequest, &Stub::Pin>},
      {"unpin", AskByName<v1::UnpinSessionRequest, &Stub::Unpin>},
      {"close", Close},
      {"watch", Watch},
      {"export", ExportSession},
      {"import", ImportSession},
      {"move", MoveSessions},
  };
  return kVerbs.at(line.session.verb)(line, connection, terminal);
}

}  // namespace quire::cli
