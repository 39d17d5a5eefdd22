// WalkJson: hands the parts of untrusted JSON to a sink, in the order of the text. ParseJson and
// readers that keep the order of members stand on it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/json.h"

namespace quire {

// Takes the parts of one text. Scalar, Open and Key return a reason to stop, or nullptr.
class JsonSink {
 public:
  virtual ~JsonSink() = default;
  virtual const char* Scalar(nlohmann::json&& value) = 0;  // null, boolean, number or string
  // An integer outside 64 bits, rounded.
  virtual const char* LargeInteger(double value) { return Scalar(value); }
  virtual const char* Open(bool object) = 0;        // begins an object or an array
  virtual const char* Key(std::string&& name) = 0;  // of the member that follows
  virtual void Close() = 0;                         // ends the innermost one
};

// As ParseJson, which says what is refused; duplicate keys are the sink's to refuse.
absl::Status WalkJson(std::string_view text, const std::string& what, const JsonLimits& limits,
                      JsonSink* sink);

}  // namespace quire
