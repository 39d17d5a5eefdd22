// Brackets within strings do not count.
#include "server/answer_parts/json_extent.h"

namespace quire {

void JsonExtent::Begin(char byte) {
  in_string_ = byte == '"';
  escaped_ = false;
  depth_ = in_string_ ? 0 : 1;
}

bool JsonExtent::Push(char byte) {
  if (in_string_) {
    if (escaped_ || byte == '\\') {
      escaped_ = !escaped_;
      return false;
    }
    in_string_ = byte != '"';
    return !in_string_ && depth_ == 0;
  }
  if (byte == '"') in_string_ = true;
  if (byte == '{' || byte == '[') ++depth_;
  if (byte == '}' || byte == ']') --depth_;
  return depth_ == 0;
}

}  // namespace quire
