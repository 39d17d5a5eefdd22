// DialAddress: a server's address as people write it, in the form that gRPC dials.
#pragma once

#include <string>

namespace quire::flags {

inline constexpr int kServerPort = 50051;  // where quire-server listens by default

// "localhost" is "localhost:50051", "::1" is "[::1]:50051" and "/run/q.sock" is "unix:/run/q.sock".
// An address with a port or a scheme (unix:, dns:, ...) stays as it is.
std::string DialAddress(const std::string& text);

}  // namespace quire::flags
