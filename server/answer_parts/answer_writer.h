// AnswerWriter: the parts of an answer as they are found in the model's text: what the user reads,
// the reasoning before it, and calls of tools. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// A piece of a tool call. The first piece of a call has its id and name; the arguments of all its
// pieces, one after the other, are the JSON object that the model wrote, byte for byte.
struct ToolCallPart {
  uint32_t index = 0;  // of the call in the answer
  std::string id, name;
  std::string arguments;
};

struct AnswerParts {
  std::string text;
  std::string reasoning;
  std::vector<ToolCallPart> calls;
};

// Appends `part`, to the last piece of `calls` if it belongs to the same call.
void AppendCall(ToolCallPart part, std::vector<ToolCallPart>* calls);

class AnswerWriter {
 public:
  // Ids of calls follow from `seed`: nine letters and digits, which every family's template takes.
  explicit AnswerWriter(uint64_t seed) : seed_(seed) {}

  void Text(std::string_view text) { parts_.text += text; }
  void Reasoning(std::string_view text) { parts_.reasoning += text; }
  void BeginCall(std::string name);
  // Of the call that began last.
  void Arguments(std::string_view json);
  void EndCall() { ++ended_; }

  uint32_t ended_calls() const { return ended_; }
  // All that was written since the last call of this.
  AnswerParts Take();

 private:
  const uint64_t seed_;
  AnswerParts parts_;
  uint32_t begun_ = 0, ended_ = 0;  // calls
};

}  // namespace quire
