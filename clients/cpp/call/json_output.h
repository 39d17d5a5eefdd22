// PrintJson: a protobuf message as one line of JSON with the proto's own field names.
#pragma once

#include <google/protobuf/message.h>

#include <ostream>
#include <string>

namespace quire::cli {

// Without the line end. 64-bit integers are strings, as the proto JSON mapping has them.
std::string ToJson(const google::protobuf::Message& message);

// One line, flushed, so that a reader of a pipe sees it at once.
void PrintJson(const google::protobuf::Message& message, std::ostream& out);

}  // namespace quire::cli
