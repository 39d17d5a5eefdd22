// GroupKey: the secret that the hosts of a group share, and the proof that a host has it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

class GroupKey {
 public:
  static constexpr size_t kMinBytes = 16;
  static constexpr size_t kNonceBytes = 32;

  // No secret: any process can prove it. For addresses that only this host reaches.
  GroupKey() = default;
  // The bytes of a file without its last line end. INVALID_ARGUMENT, with the path, if it cannot be
  // read or is shorter than kMinBytes.
  static absl::StatusOr<GroupKey> Read(const std::string& path);
  // Tests.
  explicit GroupKey(std::string secret) : secret_(std::move(secret)) {}

  bool secret() const { return !secret_.empty(); }
  // HMAC-SHA256 of the text, 32 bytes.
  std::string Prove(std::string_view text) const;
  // In a time that does not depend on the proof.
  bool Verify(std::string_view text, std::string_view proof) const;

  // Random bytes, kNonceBytes of them.
  static std::string Nonce();

 private:
  std::string secret_;
};

}  // namespace quire
