// Uses the C library's hook for certificates, which keeps the old ones where new ones fail. The
// C++ library's file watcher drops them instead, and refuses every handshake from then on.
#include "server/tls/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <optional>
#include <string>

namespace quire {
namespace {

grpc_ssl_client_certificate_request_type RequestOf(ClientCertificates clients) {
  switch (clients) {
    case ClientCertificates::kNone: return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    case ClientCertificates::kOptional: return GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    case ClientCertificates::kRequired: break;
  }
  return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
}

// The library calls it when the server starts and at the beginning of each handshake, one call at a
// time.
grpc_ssl_certificate_config_reload_status FetchNew(void* store,
                                                   grpc_ssl_server_certificate_config** config) {
  const std::optional<CertificateTexts> texts = static_cast<CertificateStore*>(store)->TakeNew();
  if (!texts) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair{texts->key.c_str(), texts->certificate.c_str()};
  // The library ends the process where the hook names no authority. Without client certificates
  // the authorities verify nothing, and the server's own chain is as good as any.
  const std::string& authorities = texts->client_ca.empty() ? texts->certificate : texts->client_ca;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(CertificateStore* store, CallGate* gate) {
  return GuardedCredentials(
      grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              RequestOf(store->files().RequiredOfClients()), FetchNew, store)),
      gate);
}

}  // namespace quire
