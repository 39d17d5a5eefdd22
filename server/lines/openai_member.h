// OpenAiMember: a member of a body in OpenAI's format on its way into a request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/json.h"

namespace quire {

// `value` and `text` are borrowed from the line.
struct OpenAiMember {
  std::string path;  // from the body, such as "messages[0].content"
  const nlohmann::json& value;
  std::string_view text;  // the value as it is written
};

// The value, or INVALID_ARGUMENT by its path.
absl::StatusOr<std::string> ReadText(const OpenAiMember& member);
absl::StatusOr<bool> ReadBool(const OpenAiMember& member);
absl::StatusOr<float> ReadNumber(const OpenAiMember& member);
absl::StatusOr<uint32_t> ReadCount(const OpenAiMember& member);

// INVALID_ARGUMENT unless it is an object or a list.
absl::Status CheckObject(const OpenAiMember& member);
absl::Status CheckList(const OpenAiMember& member);

// INVALID_ARGUMENT for a member of a name that is not served.
absl::Status UnknownMember(const std::string& path);

}  // namespace quire
