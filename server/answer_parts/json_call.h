// JsonCall: reads one call that a model writes as a JSON object, {"name": ..., "arguments": {...}},
// byte by byte. Arguments are written on as they come once the name before them is known. One
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "server/answer_parts/answer_writer.h"
#include "server/answer_parts/json_extent.h"

namespace quire {

// The tools of a request, by name.
using ToolNames = std::set<std::string, std::less<>>;

class JsonCall {
 public:
  enum class State : uint8_t { kOpen, kDone, kBroken };

  // `needs_arguments`: an object without them is no call; otherwise it is a call without arguments.
  // `tools` outlives this.
  JsonCall(const ToolNames* tools, bool needs_arguments)
      : tools_(*tools), needs_arguments_(needs_arguments) {}

  // Takes the next byte, of which the first is '{'. kBroken: this byte shows that the text is no
  // call of one of the tools. The members are name and one of arguments and parameters, which is an
  // object, or a text that holds one; others are passed over.
  State Push(char byte, AnswerWriter* out);
  // The call was written, in part or whole: its text cannot be given back any more.
  bool begun() const { return begun_; }

 private:
  enum class Place : uint8_t { kOpen, kFirstKey, kKey, kInKey, kColon, kValue, kInValue, kAfter };
  enum class Member : uint8_t { kName, kArguments, kOther };

  State InKey(char byte);
  State BeginValue(char byte, AnswerWriter* out);
  State InValue(char byte, AnswerWriter* out);
  State EndValue();
  State After(char byte, AnswerWriter* out);
  State End(AnswerWriter* out);
  bool Streams() const { return member_ == Member::kArguments && begun_; }

  const ToolNames& tools_;
  const bool needs_arguments_;
  Place place_ = Place::kOpen;
  Member member_ = Member::kOther;
  bool begun_ = false;
  bool escaped_ = false;  // in a key
  bool scalar_ = false;   // the value is neither a string nor in brackets
  JsonExtent extent_;
  std::string key_, value_;
  std::optional<std::string> name_, arguments_;
};

}  // namespace quire
