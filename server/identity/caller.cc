// Numbers for names.
#include "server/identity/caller.h"

#include <openssl/sha.h>

#include <array>
#include <cstring>

namespace quire {

TenantId TenantIdOf(std::string_view name) {
  if (name.empty()) return 0;
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const uint8_t*>(name.data()), name.size(), digest.data());
  TenantId id = 0;
  std::memcpy(&id, digest.data(), sizeof id);
  return id;
}

}  // namespace quire
