// Reads addresses as gRPC does.
#include "clients/connect/endpoint.h"

#include <arpa/inet.h>

#include <string_view>

namespace quire::connect {
namespace {

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host.ends_with(".localhost") || host == "::1") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

}  // namespace

HostPort SplitAddress(const std::string& dialled) {
  std::string_view text = dialled;
  if (text.starts_with("unix:") || text.starts_with("unix-abstract:") ||
      text.starts_with("vsock:")) {
    return {};
  }
  for (const std::string_view scheme : {"dns:", "ipv4:", "ipv6:"}) {
    if (!text.starts_with(scheme)) continue;
    text.remove_prefix(scheme.size());
    // dns://authority/host: the authority is a name server.
    if (text.starts_with("//")) text.remove_prefix(std::min(text.size(), text.find('/', 2) + 1));
    break;
  }
  if (text.starts_with("[")) {
    const size_t end = std::min(text.find(']'), text.size());
    const std::string_view behind = text.substr(std::min(end + 1, text.size()));
    return {std::string(text.substr(1, end - 1)),
            std::string(behind.starts_with(":") ? behind.substr(1) : "")};
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

bool StaysOnThisMachine(const std::string& dialled) {
  if (dialled.starts_with("unix:") || dialled.starts_with("unix-abstract:")) return true;
  const HostPort address = SplitAddress(dialled);
  return !address.host.empty() && IsLoopback(address.host);
}

}  // namespace quire::connect
