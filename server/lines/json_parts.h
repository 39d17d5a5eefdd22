// JsonPart: a member of a JSON object, or an element of a list, as it is written: what goes on to a
// chat template or a schema keeps its order of members and its numbers. Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct JsonPart {
  std::string key;        // of a member; empty for an element
  std::string_view text;  // the value, within the text that was split
};

// `text` is a valid JSON object or list. Takes time linear in it.
std::vector<JsonPart> SplitJson(std::string_view text);

// The member's value; empty if there is no such member. `text` is a valid JSON object.
std::string_view JsonMember(std::string_view text, std::string_view key);

}  // namespace quire
