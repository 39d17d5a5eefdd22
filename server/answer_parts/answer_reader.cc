// The reasoning is taken off first: what looks like a call within it is none.
#include "server/answer_parts/answer_reader.h"

#include <string>
#include <utility>

namespace quire {

AnswerReader::AnswerReader(AnswerPlan plan, uint64_t seed) : plan_(std::move(plan)), writer_(seed) {
  if (plan_.reasoning != nullptr) splitter_.emplace(*plan_.reasoning, plan_.start);
  if (plan_.calls != nullptr) calls_ = plan_.calls->make(plan_.tools.get());
}

void AnswerReader::Push(std::string_view text) {
  if (splitter_ && !splitter_->over()) ++tokens_before_answer_;
  Split(text);
}

void AnswerReader::Split(std::string_view text) {
  if (!splitter_) return Answer(text);
  std::string answer;
  splitter_->Push(text, &writer_, &answer);
  Answer(answer);
}

void AnswerReader::Finish(std::string_view rest) {
  Split(rest);
  std::string answer;
  if (splitter_) splitter_->Finish(&writer_, &answer);
  Answer(answer);
  if (calls_ != nullptr) calls_->Finish(&writer_);
}

void AnswerReader::Answer(std::string_view text) {
  if (calls_ == nullptr) return writer_.Text(text);
  calls_->Push(text, &writer_);
}

AnswerTally AnswerReader::tally() const {
  const bool reasoned = splitter_ && splitter_->reasoned();
  return {.reasoning_tokens = reasoned ? tokens_before_answer_ : 0,
          .tool_calls = writer_.ended_calls()};
}

}  // namespace quire
