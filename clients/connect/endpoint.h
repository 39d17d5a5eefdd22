// Endpoint: a server, and everything needed to speak to it, as values that have been checked.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quire::connect {

struct Endpoint {
  std::string server = "127.0.0.1:50051";  // as gRPC dials it
  bool tls = false;
  // Contents of PEM files; empty: the authorities of the system, and no certificate of the client.
  std::string ca_cert, client_cert, client_key;
  std::string ca_file;      // of ca_cert, for messages
  std::string server_name;  // expected in the server's certificate; empty: the server's host
  std::string api_key;      // a secret; empty: none
  std::vector<std::pair<std::string, std::string>> headers;  // of every call; names in lower case
};

// The name of a host and its port as written in an address that gRPC dials; the port may be
// missing. Empty host: the address is no TCP address (unix:, vsock:).
struct HostPort {
  std::string host, port;
};
HostPort SplitAddress(const std::string& dialled);

// True if what is sent to the address stays on this machine: loopback, or a Unix socket.
bool StaysOnThisMachine(const std::string& dialled);

}  // namespace quire::connect
