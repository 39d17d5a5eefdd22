// Each session is exported, imported and closed in turn; its bytes pass through and are kept
// nowhere.
#include "clients/cpp/session/session_move.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/connect/settings.h"
#include "clients/cpp/call/report.h"

namespace quire::cli {
namespace {

class Mover {
 public:
  // Both outlive this.
  Mover(Connection& from, Connection& to) : from_(from), to_(to) {}

  // The names of all sessions of the caller.
  grpc::Status List(std::vector<std::string>* names) {
    v1::ListSessionsRequest request;
    v1::ListSessionsResponse page;
    do {
      const grpc::Status status = from_.Run([&](grpc::ClientContext* context) {
        return from_.sessions().List(context, request, &page);
      });
      if (!status.ok()) return status;
      for (const v1::Session& session : page.sessions()) names->push_back(session.session_id());
      request.set_after(page.next_after());
    } while (page.has_next_after());
    return grpc::Status::OK;
  }

  // Whether the session's turns go to the server that has it.
  grpc::Status IsInPlace(const std::string& name, bool* in_place) {
    v1::ServerInfo here, there;
    grpc::Status status = from_.Run([&](grpc::ClientContext* context) {
      return from_.control().GetServerInfo(context, {}, &here);
    });
    if (!status.ok()) return status;
    to_.UseSession(name);
    status = to_.Run([&](grpc::ClientContext* context) {
      return to_.control().GetServerInfo(context, {}, &there);
    });
    *in_place = here.instance_id() == there.instance_id();
    return status;
  }

  // The session is on one of the two servers whatever happens: it is closed once the other has it.
  grpc::Status Move(const std::string& name) {
    v1::ExportSessionRequest request;
    request.set_session_id(name);
    grpc::Status imported;
    const grpc::Status exported = from_.Run([&](grpc::ClientContext* context) {
      const auto reader = from_.sessions().Export(context, request);
      imported = Import(name, *reader);
      if (!imported.ok()) context->TryCancel();
      return reader->Finish();
    });
    if (!imported.ok()) return imported;
    if (!exported.ok()) return exported;
    v1::CloseSessionRequest close;
    v1::CloseSessionResponse closed;
    close.set_session_id(name);
    return from_.Run([&](grpc::ClientContext* context) {
      return from_.sessions().Close(context, close, &closed);
    });
  }

 private:
  // A file that ends too early is refused by its checksum.
  grpc::Status Import(const std::string& name, grpc::ClientReader<v1::SessionChunk>& reader) {
    v1::SessionChunk chunk;
    // Asks for the first piece before it begins, so that a refused export begins no import.
    if (!reader.Read(&chunk)) return grpc::Status::OK;
    v1::Session session;
    return to_.Run([&](grpc::ClientContext* context) {
      const auto writer = to_.sessions().Import(context, &session);
      v1::ImportSessionRequest request;
      request.set_session_id(name);
      do {
        request.mutable_chunk()->Swap(&chunk);
        if (!writer->Write(request)) break;
        request.clear_session_id();
      } while (reader.Read(&chunk));
      writer->WritesDone();
      return writer->Finish();
    });
  }

  Connection& from_;
  Connection& to_;
};

}  // namespace

int MoveSessions(const Invocation& line, Connection& connection, Terminal& terminal) {
  connect::ConnectionFlags flags = line.connection;
  flags.server = line.session.destination;
  absl::StatusOr<connect::Endpoint> endpoint =
      connect::ResolveEndpoint(flags, terminal.environment);
  if (!endpoint.ok()) return ReportLocal(std::string(endpoint.status().message()), terminal.err);
  const std::unique_ptr<Connection> to = connection.To(*std::move(endpoint));
  Mover mover(connection, *to);
  std::vector<std::string> names;
  if (line.session.name) names.push_back(*line.session.name);
  const grpc::Status listed = line.session.name ? grpc::Status::OK : mover.List(&names);
  if (!listed.ok()) return Report(listed, terminal.err);
  int code = kExitOk;
  for (const std::string& name : names) {
    bool in_place = false;
    grpc::Status status = mover.IsInPlace(name, &in_place);
    if (status.ok() && !in_place) status = mover.Move(name);
    if (status.ok()) {
      terminal.out << (in_place ? "left " : "moved ") << name << std::endl;
      continue;
    }
    // The others may move all the same, unless there is no server any more.
    terminal.err << name << ": ";
    code = Report(status, terminal.err);
    if (status.error_code() == grpc::StatusCode::CANCELLED) break;
  }
  return code;
}

}  // namespace quire::cli
