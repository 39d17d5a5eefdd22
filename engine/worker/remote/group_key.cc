// HMAC-SHA256 by OpenSSL.
#include "engine/worker/remote/group_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <fstream>

#include "kernels/check.h"

namespace quire {
namespace {

constexpr size_t kMaxFileBytes = 4096;

}  // namespace

absl::StatusOr<GroupKey> GroupKey::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError("--group-key-file " + path + ": cannot be read");
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.size() < kMinBytes || text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        "--group-key-file " + path + ": holds " + std::to_string(text.size()) +
        " bytes; a key has " + std::to_string(kMinBytes) + " to " + std::to_string(kMaxFileBytes));
  }
  return GroupKey(std::move(text));
}

std::string GroupKey::Prove(std::string_view text) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> proof{};
  unsigned int length = 0;
  CHECK(HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(),
             &length) != nullptr);
  return {reinterpret_cast<const char*>(proof.data()), length};
}

bool GroupKey::Verify(std::string_view text, std::string_view proof) const {
  const std::string expected = Prove(text);
  return proof.size() == expected.size() &&
         CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

std::string GroupKey::Nonce() {
  std::string nonce(kNonceBytes, '\0');
  CHECK_EQ(getrandom(nonce.data(), nonce.size(), 0), static_cast<ssize_t>(nonce.size()));
  return nonce;
}

}  // namespace quire
