// Credentials of the channel prove the peers; the key travels as plain metadata, because gRPC sends
// credentials of calls over TLS only, and a Unix socket needs none.
#include "clients/connect/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

namespace quire::connect {
namespace {

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const Endpoint& endpoint) {
  if (!endpoint.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = endpoint.ca_cert;
  options.pem_cert_chain = endpoint.client_cert;
  options.pem_private_key = endpoint.client_key;
  return grpc::SslCredentials(options);
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const Endpoint& endpoint,
                                           grpc::ChannelArguments arguments) {
  // An HTTP proxy of the environment is meant for the web, not for the machine next door.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (endpoint.tls && !endpoint.server_name.empty()) {
    arguments.SetSslTargetNameOverride(endpoint.server_name);
  }
  return grpc::CreateCustomChannel(endpoint.server, CredentialsOf(endpoint), arguments);
}

void AddMetadata(const Endpoint& endpoint, grpc::ClientContext* context) {
  if (!endpoint.api_key.empty())
    context->AddMetadata("authorization", "Bearer " + endpoint.api_key);
  for (const auto& [name, value] : endpoint.headers) context->AddMetadata(name, value);
}

}  // namespace quire::connect
