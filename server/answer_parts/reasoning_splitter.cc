// Byte by byte, so that the result does not depend on how the text is cut.
#include "server/answer_parts/reasoning_splitter.h"

#include <utility>

namespace quire {

ReasoningSplitter::ReasoningSplitter(const ReasoningFormat& format, ReasoningStart start)
    : format_(format),
      opened_by_prompt_(start == ReasoningStart::kBegun),
      place_(start == ReasoningStart::kOver ? Place::kAnswer : Place::kBegin),
      reasoned_(opened_by_prompt_),
      end_(format.end) {}

void ReasoningSplitter::Push(std::string_view text, AnswerWriter* out, std::string* answer) {
  while (!text.empty() && place_ != Place::kAnswer) {
    PushByte(text.front(), out, answer);
    text.remove_prefix(1);
  }
  answer->append(text);
}

void ReasoningSplitter::PushByte(char byte, AnswerWriter* out, std::string* answer) {
  if (place_ == Place::kBegin) return PushBegin(byte, out, answer);
  if (place_ == Place::kOpened || place_ == Place::kAfter) {
    if (IsLineBreak(byte)) return;
    place_ = place_ == Place::kOpened ? Place::kReasoning : Place::kAnswer;
  }
  if (place_ == Place::kAnswer) return answer->push_back(byte);
  std::string text;
  if (end_.Push(byte, &text)) place_ = Place::kAfter;
  out->Reasoning(text);
}

void ReasoningSplitter::PushBegin(char byte, AnswerWriter* out, std::string* answer) {
  if (matched_ == 0 && IsJsonSpace(byte)) {
    held_ += byte;
  } else if (byte == format_.begin[matched_]) {
    held_ += byte;
    if (++matched_ < format_.begin.size()) return;
    held_.clear();
    reasoned_ = true;
    place_ = Place::kOpened;
  } else {
    GiveHeld(out, answer);
    PushByte(byte, out, answer);
  }
}

// There is no begin marker: the text belongs to what the prompt opened, or to the answer.
void ReasoningSplitter::GiveHeld(AnswerWriter* out, std::string* answer) {
  const std::string text = std::exchange(held_, std::string());
  place_ = opened_by_prompt_ ? Place::kOpened : Place::kAnswer;
  for (const char byte : text) PushByte(byte, out, answer);
}

void ReasoningSplitter::Finish(AnswerWriter* out, std::string* answer) {
  if (place_ == Place::kBegin) GiveHeld(out, answer);
  if (place_ != Place::kReasoning) return;
  std::string text;
  end_.Flush(&text);
  out->Reasoning(text);
}

}  // namespace quire
