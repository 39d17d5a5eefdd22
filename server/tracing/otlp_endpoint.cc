// Refuses an address of OTLP over HTTP, which looks almost the same.
#include "server/tracing/otlp_endpoint.h"

#include <charconv>
#include <string_view>

namespace quire {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::string_view kHttps = "https://";
constexpr int kMaxPort = 65535;

}  // namespace

std::string OtlpEndpoint::target() const {
  // With the resolver named, a host called `unix` or `dns` is a host.
  const bool ipv6 = host.find(':') != std::string::npos;
  return "dns:///" + (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& text) {
  const auto fault = [&text](const char* sentence) {
    return absl::InvalidArgumentError("--otlp-endpoint " + text + " " + sentence);
  };
  OtlpEndpoint endpoint;
  std::string_view rest = text;
  for (const std::string_view scheme : {kHttp, kHttps}) {
    if (!rest.starts_with(scheme)) continue;
    rest.remove_prefix(scheme.size());
    endpoint.has_scheme = true;
    endpoint.tls = scheme == kHttps;
    break;
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find("://") != std::string_view::npos) {
    return fault("has a scheme that is neither http:// nor https://");
  }
  if (rest.find('/') != std::string_view::npos) {
    return fault(
        "has a path, as OTLP over HTTP does: Quire sends OTLP over gRPC, so give the collector's "
        "gRPC port, usually 4317, without a path");
  }
  if (rest.find('@') != std::string_view::npos) return fault("has a user, which OTLP does not use");
  const size_t colon = rest.rfind(':');
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return fault("is IPv6 without brackets: write [ADDRESS]:PORT");
  }
  const std::string_view digits =
      colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  const char* const end = digits.data() + digits.size();
  const auto [read_to, error] = std::from_chars(digits.data(), end, endpoint.port);
  const bool is_port =
      error == std::errc() && read_to == end && endpoint.port >= 1 && endpoint.port <= kMaxPort;
  if (host.empty() || !is_port) {
    return fault("is not HOST:PORT: give the collector's gRPC port, usually 4317");
  }
  endpoint.host = std::string(host);
  return endpoint;
}

}  // namespace quire
