// SessionClient: the calls of a session as functions, for tests.
#pragma once

#include <string>
#include <vector>

#include "tests/server/test_server.h"

namespace quire {

class SessionClient {
 public:
  explicit SessionClient(TestServer& server, uint64_t tenant = 0)
      : server_(server), tenant_(std::to_string(tenant)) {}

  // One call of the Sessions service that is answered with a session; the status is kept.
  template <typename Request>
  v1::Session Call(grpc::Status (v1::Sessions::Stub::*method)(grpc::ClientContext*, const Request&,
                                                              v1::Session*),
                   const Request& request) {
    grpc::ClientContext context;
    context.AddMetadata(kTestTenant, tenant_);
    v1::Session session;
    status = (server_.sessions().*method)(&context, request, &session);
    return session;
  }
  // The same for a call whose request has only the name.
  template <typename Request>
  v1::Session Do(grpc::Status (v1::Sessions::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            v1::Session*),
                 const std::string& name) {
    Request request;
    request.set_session_id(name);
    return Call(method, request);
  }
  v1::Session Create(const std::string& name) { return Do(&v1::Sessions::Stub::Create, name); }
  v1::Session Get(const std::string& name) { return Do(&v1::Sessions::Stub::Get, name); }
  v1::Session Truncate(const std::string& name, uint32_t position);
  v1::Session Fork(const std::string& name, const std::string& other);
  grpc::Status Close(const std::string& name);
  v1::ListSessionsResponse List(uint32_t page_size = 100, const std::string& after = "");

  // A turn: appends `text` and reads the whole answer.
  StreamedOutput Say(const std::string& name, const std::string& text, uint32_t max_tokens = 5);
  StreamedOutput Turn(const v1::GenerateRequest& request);

  // The file of a session; `status` has the call's status.
  std::string Export(const std::string& name);
  // In messages of `piece` bytes.
  v1::Session Import(const std::string& name, const std::string& file, size_t piece = 1 << 20);

  grpc::Status status;

 private:
  TestServer& server_;
  const std::string tenant_;
};

}  // namespace quire
