// gRPC alone would dial port 443 where none is given.
#include "flags/address.h"

#include <algorithm>

namespace quire::flags {

std::string DialAddress(const std::string& text) {
  const std::string port = ":" + std::to_string(kServerPort);
  if (text.empty()) return text;
  if (text.front() == '/') return "unix:" + text;
  for (const char* scheme : {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:"}) {
    if (text.starts_with(scheme)) return text;
  }
  if (text.front() == '[') return text.back() == ']' ? text + port : text;
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons == 0) return text + port;
  return colons == 1 ? text : "[" + text + "]" + port;
}

}  // namespace quire::flags
