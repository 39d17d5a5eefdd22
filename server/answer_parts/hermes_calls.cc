// Hermes and Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, as often as the model
// likes, anywhere in the text.
#include <optional>
#include <utility>

#include "server/answer_parts/call_format.h"
#include "server/answer_parts/marker_scan.h"

namespace quire {
namespace {

constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";

class HermesCalls final : public CallParser {
 public:
  explicit HermesCalls(const ToolNames* tools) : tools_(tools), begin_(kBegin) {}

  void Push(std::string_view text, AnswerWriter* out) override {
    for (const char byte : text) PushByte(byte, out);
  }

  void Finish(AnswerWriter* out) override {
    if (place_ == Place::kClose && IsBlank(held_)) held_.clear();
    GiveBack(out);
  }

  bool holds() const override { return !held_.empty() || begin_.holds(); }

 private:
  enum class Place : uint8_t {
    kText,
    kCall,   // after the begin marker
    kClose,  // after the call's object
    kGap,    // after the end marker
  };

  static bool IsBlank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  }

  void PushByte(char byte, AnswerWriter* out) {
    switch (place_) {
      case Place::kText: return InText(byte, out);
      case Place::kCall: return InCall(byte, out);
      case Place::kClose: return InClose(byte, out);
      case Place::kGap:
        if (IsLineBreak(byte)) return;
        place_ = Place::kText;
        return InText(byte, out);
    }
  }

  void InText(char byte, AnswerWriter* out) {
    std::string text;
    if (begin_.Push(byte, &text)) {
      held_ = begin_.found();
      call_.emplace(tools_, /*needs_arguments=*/false);
      opened_ = false;
      place_ = Place::kCall;
    }
    out->Text(text);
  }

  void InCall(char byte, AnswerWriter* out) {
    opened_ = opened_ || !IsJsonSpace(byte);
    const auto state = opened_ ? call_->Push(byte, out) : JsonCall::State::kOpen;
    if (call_->begun()) held_.clear();
    if (state == JsonCall::State::kBroken) {
      GiveBack(out);
      return InText(byte, out);
    }
    if (!call_->begun()) held_ += byte;
    if (state == JsonCall::State::kDone) {
      matched_ = 0;
      place_ = Place::kClose;
    }
  }

  // White space, then the end marker. A model that leaves the marker out goes on with text.
  void InClose(char byte, AnswerWriter* out) {
    if (matched_ == 0 && IsJsonSpace(byte)) {
      held_ += byte;
    } else if (byte == kEnd[matched_]) {
      held_ += byte;
      if (++matched_ < kEnd.size()) return;
      held_.clear();
      place_ = Place::kGap;
    } else {
      GiveBack(out);
      InText(byte, out);
    }
  }

  void GiveBack(AnswerWriter* out) {
    std::string text = std::exchange(held_, std::string());
    if (place_ == Place::kText) begin_.Flush(&text);
    out->Text(text);
    place_ = Place::kText;
  }

  const ToolNames* const tools_;
  Place place_ = Place::kText;
  MarkerScan begin_;
  std::optional<JsonCall> call_;
  bool opened_ = false;  // white space before the call's object has ended
  size_t matched_ = 0;   // of the end marker
  std::string held_;     // what is text again if it turns out to be no call
};

}  // namespace

std::unique_ptr<CallParser> MakeHermesCalls(const ToolNames* tools) {
  return std::make_unique<HermesCalls>(tools);
}

}  // namespace quire
