// Names come only from certificates that TLS has verified: plaintext connections have no such
// properties, and a client cannot set them.
#include "server/identity/call_facts.h"

#include <grpc/grpc_security_constants.h>
#include <grpc/slice.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr char kAuthorization[] = "authorization";

// The kinds of names in a certificate, by gRPC's property and in CallFacts.
struct NameKind {
  const char* property;
  const char* prefix;
};
constexpr NameKind kNameKinds[] = {{GRPC_PEER_SPIFFE_ID_PROPERTY_NAME, ""},
                                   {GRPC_PEER_URI_PROPERTY_NAME, "uri:"},
                                   {GRPC_PEER_DNS_PROPERTY_NAME, "dns:"},
                                   {GRPC_X509_CN_PROPERTY_NAME, "cn:"}};

std::string_view ViewOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

std::string_view ViewOf(const grpc::string_ref value) { return {value.data(), value.size()}; }

}  // namespace

CallFacts FactsOf(const grpc::ServerContextBase& call) {
  CallFacts facts;
  const auto [begin, end] = call.client_metadata().equal_range(kAuthorization);
  for (auto header = begin; header != end; ++header) {
    facts.authorization.push_back(ViewOf(header->second));
  }
  const std::shared_ptr<const grpc::AuthContext> context = call.auth_context();
  if (context == nullptr) return facts;
  for (const NameKind& kind : kNameKinds) {
    for (const grpc::string_ref& name : context->FindPropertyValues(kind.property)) {
      facts.certificate_names.push_back(kind.prefix + std::string(name.data(), name.size()));
    }
  }
  return facts;
}

CallFacts FactsOf(const grpc_auth_context* context, std::span<const grpc_metadata> metadata,
                  std::string_view* method) {
  CallFacts facts;
  for (const grpc_metadata& entry : metadata) {
    const std::string_view key = ViewOf(entry.key);
    if (key == kAuthorization) facts.authorization.push_back(ViewOf(entry.value));
    if (key == ":path") *method = ViewOf(entry.value);
  }
  if (context == nullptr) return facts;
  for (const NameKind& kind : kNameKinds) {
    grpc_auth_property_iterator names =
        grpc_auth_context_find_properties_by_name(context, kind.property);
    while (const grpc_auth_property* name = grpc_auth_property_iterator_next(&names)) {
      facts.certificate_names.push_back(
          absl::StrCat(kind.prefix, absl::string_view(name->value, name->value_length)));
    }
  }
  return facts;
}

}  // namespace quire
