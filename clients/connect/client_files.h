// CheckPem and IsKeyOf: the texts of certificates and keys, judged before they are dialled with.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace quire::connect {

// OK if the PEM text holds whole certificates, or one private key without a password.
// INVALID_ARGUMENT says what is wrong and what to do.
absl::Status CheckPem(const std::string& text, bool key);

// True if the key belongs to the first certificate. Both passed CheckPem.
bool IsKeyOf(const std::string& key, const std::string& certificate);

}  // namespace quire::connect
