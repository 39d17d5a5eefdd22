// TlsCredentials: gRPC's credentials of a listener whose certificates come from a store.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/identity/call_gate.h"
#include "server/tls/certificate_store.h"

namespace quire {

// Each new connection gets the certificates that `store` has then; open connections keep theirs.
// TLS 1.2 and 1.3, by gRPC's default. `gate` is asked about every call. For one server, which both
// outlive.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(CertificateStore* store, CallGate* gate);

}  // namespace quire
