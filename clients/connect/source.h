// Source: the settings of a connection that one place gives: the flags, the environment, a profile.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::connect {

struct Source {
  // By the name of the setting: server, ca_cert, client_cert, client_key, server_name, api_key,
  // api_key_file. None is empty.
  std::map<std::string, std::string, std::less<>> texts;
  std::optional<bool> tls;
  std::vector<std::pair<std::string, std::string>> headers;
  // How messages name a setting of this source: "--ca-cert", "QUIRE_CA_CERT".
  std::function<std::string(std::string_view name)> label;
};

}  // namespace quire::connect
