// Ranges are the request decoder's: here a value needs its type alone.
#include "server/lines/openai_member.h"

#include <algorithm>
#include <limits>

#include "server/call/status_codec.h"

namespace quire {

absl::StatusOr<std::string> ReadText(const OpenAiMember& member) {
  if (member.value.is_string()) return member.value.get<std::string>();
  return InvalidField(member.path, "must be a text");
}

absl::StatusOr<bool> ReadBool(const OpenAiMember& member) {
  if (member.value.is_boolean()) return member.value.get<bool>();
  return InvalidField(member.path, "must be true or false");
}

absl::StatusOr<float> ReadNumber(const OpenAiMember& member) {
  if (!member.value.is_number()) return InvalidField(member.path, "must be a number");
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(member.value.get<double>(), -kLargest, kLargest));
}

absl::StatusOr<uint32_t> ReadCount(const OpenAiMember& member) {
  if (member.value.is_number_unsigned() &&
      member.value.get<uint64_t>() <= std::numeric_limits<uint32_t>::max()) {
    return member.value.get<uint32_t>();
  }
  return InvalidField(member.path, "must be a whole number of 0 or more");
}

absl::Status CheckObject(const OpenAiMember& member) {
  if (member.value.is_object()) return absl::OkStatus();
  return InvalidField(member.path, "must be an object");
}

absl::Status CheckList(const OpenAiMember& member) {
  if (member.value.is_array()) return absl::OkStatus();
  return InvalidField(member.path, "must be a list");
}

absl::Status UnknownMember(const std::string& path) {
  // A fault without a field would be one of the whole line.
  return InvalidField(path.empty() ? "\"\"" : path, "is not served; leave it out");
}

}  // namespace quire
