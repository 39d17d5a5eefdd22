// OtlpEndpoint: where an OpenTelemetry collector takes OTLP over gRPC.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace quire {

struct OtlpEndpoint {
  std::string host;  // without the brackets of IPv6
  int port = 0;
  bool tls = false;
  bool has_scheme = false;  // it says http:// or https://; without, only loopback is plaintext

  // As gRPC takes it.
  std::string target() const;
};

// "HOST:PORT", "http://HOST:PORT" or "https://HOST:PORT", perhaps with a slash at the end.
// INVALID_ARGUMENT with a sentence that says what to change.
absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& text);

}  // namespace quire
