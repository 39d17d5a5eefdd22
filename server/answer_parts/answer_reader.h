// AnswerReader: reads the text of one output as reasoning, answer and tool calls. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/answer_parts/answer_writer.h"
#include "server/answer_parts/call_format.h"
#include "server/answer_parts/reasoning_format.h"
#include "server/answer_parts/reasoning_splitter.h"

namespace quire {

// The parts that are to be told apart in one request's output.
struct AnswerPlan {
  const ReasoningFormat* reasoning = nullptr;  // null: reasoning is text like all other
  ReasoningStart start = ReasoningStart::kMayBegin;
  std::optional<int32_t> min_tokens, max_tokens;  // of reasoning, markers not counted
  const CallFormat* calls = nullptr;              // null: calls are text
  std::shared_ptr<const ToolNames> tools;
  std::vector<int32_t> marks;  // special tokens whose text the reader must see

  bool reads() const { return reasoning != nullptr || calls != nullptr; }
  // Whether the output may have reasoning.
  bool reasons() const { return reasoning != nullptr && start != ReasoningStart::kOver; }
  bool bounded() const { return reasons() && (min_tokens || max_tokens); }
};

struct AnswerTally {
  int32_t reasoning_tokens = 0;  // with the markers
  uint32_t tool_calls = 0;       // whole ones
};

class AnswerReader {
 public:
  // `seed` chooses the ids of calls.
  AnswerReader(AnswerPlan plan, uint64_t seed);

  // Takes the text that one more token made certain; it may be empty.
  void Push(std::string_view text);
  // The output ends, with this text that no further token made.
  void Finish(std::string_view rest);
  // All that was found since the last call of this.
  AnswerParts Take() { return writer_.Take(); }
  AnswerTally tally() const;
  // Whether text is held back. False: Finish of an empty rest finds nothing.
  bool holds() const { return (splitter_ && splitter_->holds()) || (calls_ && calls_->holds()); }

 private:
  void Split(std::string_view text);
  void Answer(std::string_view text);

  const AnswerPlan plan_;
  AnswerWriter writer_;
  std::optional<ReasoningSplitter> splitter_;
  std::unique_ptr<CallParser> calls_;
  int32_t tokens_before_answer_ = 0;
};

}  // namespace quire
