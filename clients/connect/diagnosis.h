// WhyNoConnection: what stands between this client and a server, found by trying once more by hand.
#pragma once

#include <string>

#include "clients/connect/endpoint.h"

namespace quire::connect {

// One sentence with the way out, such as "the server's certificate is valid for a.example, not for
// b.example: ..."; empty if a hand-made connection shows no fault. gRPC reports most of these as
// "Socket closed". Blocks for at most about ten seconds.
std::string WhyNoConnection(const Endpoint& endpoint);

}  // namespace quire::connect
