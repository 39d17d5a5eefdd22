// Each function makes one call.
#include "tests/server/session_client.h"

#include <gtest/gtest.h>

namespace quire {

v1::Session SessionClient::Truncate(const std::string& name, uint32_t position) {
  v1::TruncateSessionRequest request;
  request.set_session_id(name);
  request.set_position(position);
  return Call(&v1::Sessions::Stub::Truncate, request);
}

v1::Session SessionClient::Fork(const std::string& name, const std::string& other) {
  v1::ForkSessionRequest request;
  request.set_session_id(name);
  request.set_new_session_id(other);
  return Call(&v1::Sessions::Stub::Fork, request);
}

grpc::Status SessionClient::Close(const std::string& name) {
  grpc::ClientContext context;
  context.AddMetadata(kTestTenant, tenant_);
  v1::CloseSessionRequest request;
  request.set_session_id(name);
  v1::CloseSessionResponse response;
  status = server_.sessions().Close(&context, request, &response);
  return status;
}

v1::ListSessionsResponse SessionClient::List(uint32_t page_size, const std::string& after) {
  grpc::ClientContext context;
  context.AddMetadata(kTestTenant, tenant_);
  v1::ListSessionsRequest request;
  request.set_page_size(page_size);
  if (!after.empty()) request.set_after(after);
  v1::ListSessionsResponse response;
  status = server_.sessions().List(&context, request, &response);
  return response;
}

StreamedOutput SessionClient::Say(const std::string& name, const std::string& text,
                                  uint32_t max_tokens) {
  v1::GenerateRequest request = AskFor(max_tokens);
  request.set_text(text);
  request.set_session_id(name);
  return Turn(request);
}

StreamedOutput SessionClient::Turn(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  context.AddMetadata(kTestTenant, tenant_);
  StreamedOutput out = Stream(server_.inference(), request, &context);
  status = out.status;
  return out;
}

std::string SessionClient::Export(const std::string& name) {
  grpc::ClientContext context;
  context.AddMetadata(kTestTenant, tenant_);
  v1::ExportSessionRequest request;
  request.set_session_id(name);
  const auto reader = server_.sessions().Export(&context, request);
  std::string file;
  for (v1::SessionChunk chunk; reader->Read(&chunk);) file += chunk.data();
  status = reader->Finish();
  return file;
}

v1::Session SessionClient::Import(const std::string& name, const std::string& file, size_t piece) {
  grpc::ClientContext context;
  context.AddMetadata(kTestTenant, tenant_);
  v1::Session session;
  const auto writer = server_.sessions().Import(&context, &session);
  v1::ImportSessionRequest request;
  request.set_session_id(name);
  for (size_t at = 0; at < file.size() || at == 0; at += piece) {
    request.mutable_chunk()->set_data(file.substr(at, piece));
    if (!writer->Write(request)) break;
    request.clear_session_id();
  }
  writer->WritesDone();
  status = writer->Finish();
  return session;
}

}  // namespace quire
