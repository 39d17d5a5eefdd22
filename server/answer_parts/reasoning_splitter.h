// ReasoningSplitter: takes the reasoning off the begin of an answer. Line breaks beside a marker
// belong to it. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/answer_parts/answer_writer.h"
#include "server/answer_parts/marker_scan.h"
#include "server/answer_parts/reasoning_format.h"

namespace quire {

class ReasoningSplitter {
 public:
  // A prompt that opened the reasoning and a model that opens it once more open it once. `format`
  // outlives this.
  ReasoningSplitter(const ReasoningFormat& format, ReasoningStart start);

  // Writes the reasoning of the text to `out`, and appends what follows it to `answer`.
  void Push(std::string_view text, AnswerWriter* out, std::string* answer);
  // The text ends: lets go of what was held back.
  void Finish(AnswerWriter* out, std::string* answer);

  // Whether there was reasoning.
  bool reasoned() const { return reasoned_; }
  // Whether all that comes belongs to the answer.
  bool over() const { return place_ == Place::kAnswer || place_ == Place::kAfter; }
  // Whether text is held back that Finish would let go of.
  bool holds() const { return !held_.empty() || end_.holds(); }

 private:
  enum class Place : uint8_t {
    kBegin,      // white space, then perhaps the begin marker
    kOpened,     // line breaks after it
    kReasoning,  // to the end marker
    kAfter,      // line breaks after that
    kAnswer,
  };
  void PushByte(char byte, AnswerWriter* out, std::string* answer);
  void PushBegin(char byte, AnswerWriter* out, std::string* answer);
  void GiveHeld(AnswerWriter* out, std::string* answer);

  const ReasoningFormat& format_;
  const bool opened_by_prompt_;
  Place place_;
  bool reasoned_;
  std::string held_;    // kBegin: white space, then the marker's first bytes
  size_t matched_ = 0;  // of the begin marker
  MarkerScan end_;
};

}  // namespace quire
