// CallFormat: how a family of models writes calls of tools, as a parser of its text. To add a
// family: a file of its own with a class that implements CallParser, its line at the end of this
// page, and its row in call_format.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_parts/answer_writer.h"
#include "server/answer_parts/json_call.h"

namespace quire {

// Takes calls out of the text of one answer. Text that only looks like a call is written as text,
// byte for byte: all that is left out are the marks around calls, line breaks beside them, and
// members of a call other than its name and its arguments. One thread.
class CallParser {
 public:
  virtual ~CallParser() = default;
  // The result does not depend on how the text is cut.
  virtual void Push(std::string_view text, AnswerWriter* out) = 0;
  // The text ends: what was held back is no call.
  virtual void Finish(AnswerWriter* out) = 0;
  // Whether text is held back. False: Finish writes nothing.
  virtual bool holds() const = 0;
};

struct CallFormat {
  const char* name;     // as --tool-call-parser takes it
  const char* aliases;  // "a|b"
  // A chat template with all of these texts is of the family.
  std::vector<std::string> signs;
  // Marks that may be special tokens, which the parser must see.
  std::vector<std::string> marks;
  // Calls as the grammar of a tool_choice that requires them writes them: text before, between and
  // after objects of "name" and this member.
  const char* open;
  const char* between;
  const char* close;
  const char* arguments;
  // `tools` outlives the parser.
  std::unique_ptr<CallParser> (*make)(const ToolNames* tools);
};

// Null for a name that no row has.
const CallFormat* FindCallFormat(std::string_view name);
// "a, b, c": every name and alias.
std::string CallFormatNames();
// The first format whose signs a chat template has; null if there is none. `mentions` tells whether
// the model's templates have a text.
const CallFormat* DetectCallFormat(const std::function<bool(std::string_view)>& mentions);

std::unique_ptr<CallParser> MakeHermesCalls(const ToolNames* tools);
std::unique_ptr<CallParser> MakeLlamaCalls(const ToolNames* tools);
std::unique_ptr<CallParser> MakeMistralCalls(const ToolNames* tools);

}  // namespace quire
