// Precompiled: the normalizer of SentencePiece models, a table from characters to their normal
// forms.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/text/normalize/normalizer.h"

namespace quire {

// `charsmap` is the model's precompiled_charsmap: the size of a trie in bytes (32 bits, little
// endian), the trie as an array of 32-bit units (the format of darts-clone), and the normal forms,
// each ended by a zero byte. INVALID_ARGUMENT if it cannot be that.
absl::StatusOr<std::unique_ptr<const Normalizer>> MakePrecompiled(std::string_view charsmap);

// The bytes that base64 text (with padding) stands for; INVALID_ARGUMENT if it is not that.
absl::StatusOr<std::string> DecodeBase64(std::string_view text);

}  // namespace quire
