// The bytes belong to the server and are not read here.
#include "clients/cpp/session/session_file.h"

#include <string>

#include "clients/cpp/call/generate_request.h"
#include "clients/cpp/call/input_file.h"
#include "clients/cpp/call/json_output.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/call/session_output.h"
#include "clients/cpp/call/whole_file.h"

namespace quire::cli {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

// Copies the server's chunks to `out`; `bytes` counts them.
grpc::Status Receive(const Invocation& line, Connection& connection, std::ostream& out,
                     uint64_t* bytes) {
  v1::ExportSessionRequest request;
  request.set_session_id(*line.session.name);
  return connection.Run([&](grpc::ClientContext* context) {
    auto reader = connection.sessions().Export(context, request);
    v1::SessionChunk chunk;
    while (reader->Read(&chunk)) {
      out.write(chunk.data().data(), static_cast<std::streamsize>(chunk.data().size()));
      *bytes += chunk.data().size();
      if (!out) context->TryCancel();
    }
    return reader->Finish();
  });
}

// Sends `in` until its end, or until the server refuses more.
void Send(std::istream& in, v1::ImportSessionRequest* request,
          grpc::ClientWriter<v1::ImportSessionRequest>* writer) {
  std::string& data = *request->mutable_chunk()->mutable_data();
  for (bool first = true;; first = false) {
    data.resize(kChunkBytes);
    in.read(data.data(), kChunkBytes);
    data.resize(static_cast<size_t>(in.gcount()));
    if (data.empty() && !first) break;
    if (!writer->Write(*request)) break;
    request->clear_session_id();
    request->clear_options();
  }
  writer->WritesDone();
}

}  // namespace

int ExportSession(const Invocation& line, Connection& connection, Terminal& terminal) {
  const std::string& path = line.session.file;
  uint64_t bytes = 0;
  if (path == "-") {
    const grpc::Status status = Receive(line, connection, terminal.out, &bytes);
    if (!terminal.out) return ReportLocal("cannot write the output", terminal.err);
    return Report(status, terminal.err);
  }
  WholeFile file(path);
  if (!file.out()) return ReportLocal(CannotWrite(path), terminal.err);
  const grpc::Status status = Receive(line, connection, file.out(), &bytes);
  if (!file.out()) return ReportLocal(CannotWrite(path), terminal.err);
  if (!status.ok()) return Report(status, terminal.err);
  if (!file.Keep()) return ReportLocal(CannotWrite(path), terminal.err);
  terminal.out << "wrote " << bytes << " bytes to " << path << "\n";
  return kExitOk;
}

int ImportSession(const Invocation& line, Connection& connection, Terminal& terminal) {
  InputFile file;
  std::istream* const in = file.Open(line.session.file, terminal);
  if (in == nullptr) return kExitLocal;
  v1::ImportSessionRequest request;
  if (line.session.name) request.set_session_id(*line.session.name);
  if (const auto options = ToOptions(line.session)) *request.mutable_options() = *options;
  v1::Session session;
  const grpc::Status status = connection.Run([&](grpc::ClientContext* context) {
    auto writer = connection.sessions().Import(context, &session);
    Send(*in, &request, writer.get());
    return writer->Finish();
  });
  if (!status.ok()) return Report(status, terminal.err);
  if (line.json) {
    PrintJson(session, terminal.out);
  } else {
    PrintSession(session, terminal.out);
  }
  return kExitOk;
}

}  // namespace quire::cli
