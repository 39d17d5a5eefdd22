// The tokens around a text where they are not those of tokenizer.json: add_bos_token and
// add_eos_token of tokenizer_config.json. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "engine/base/json.h"
#include "server/text/file/json_node.h"
#include "server/text/tokenizer_file.h"

namespace quire {

struct FrameToken {
  std::string content;
  int32_t id = 0;
};

// A `post_processor` that puts the tokens that there are before and behind a text.
nlohmann::json FrameProcessor(const std::optional<FrameToken>& before,
                              const std::optional<FrameToken>& behind);

// Replaces the post-processor of a tokenizer.json by add_bos_token and add_eos_token of `config`,
// the tokenizer_config.json beside it. Without either of them, and with a tokenizer_class that
// leaves them unread, nothing changes. INVALID_ARGUMENT names the key: of a wrong type, or a token
// that the file does not have.
absl::Status FrameAsConfigured(const JsonNode& config, TokenizerFile* file);

}  // namespace quire
