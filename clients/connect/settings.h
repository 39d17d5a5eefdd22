// ConnectionFlags and ResolveEndpoint: the settings of a connection, the same for every client: a
// flag beats the environment, which beats a profile. docs/cli.md lists them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/connect/endpoint.h"
#include "flags/flag.h"

namespace quire::connect {

// The variables that settings may come from: QUIRE_*, HOME and XDG_CONFIG_HOME.
using Environment = std::map<std::string, std::string>;
// Those of a process; `variables` are "NAME=VALUE", as main gets them, and end with null.
Environment EnvironmentOf(char** variables);

// The targets of the flags. None holds a secret, because every user of a machine can read the
// arguments of a process.
struct ConnectionFlags {
  std::optional<std::string> server, ca_cert, client_cert, client_key, server_name, api_key_file;
  std::optional<std::string> profile;
  std::vector<std::string> headers;  // "name: value"
  bool tls = false;
  bool said_tls = false;  // --tls or --no-tls was given; the program sets it behind the parse
};

// The row of --server, and the rows of the others under the heading `group`. They set `flags`,
// which outlives them.
flags::Flag ServerRow(ConnectionFlags* flags, std::string_view group);
std::vector<flags::Flag> ConnectionRows(ConnectionFlags* flags, std::string_view group);

// The endpoint that these settings name, with its files read. INVALID_ARGUMENT names the flag, the
// variable or the profile's field that is wrong, and what to do. Refuses to send a key in plaintext
// beyond this machine.
absl::StatusOr<Endpoint> ResolveEndpoint(const ConnectionFlags& flags,
                                         const Environment& environment);

}  // namespace quire::connect
