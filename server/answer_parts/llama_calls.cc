// Llama 3.x: {"name": ..., "parameters": {...}} as the whole answer, or after <|python_tag|>;
// further calls follow a semicolon, or nothing.
#include <optional>
#include <utility>

#include "server/answer_parts/call_format.h"
#include "server/answer_parts/marker_scan.h"

namespace quire {
namespace {

constexpr std::string_view kTag = "<|python_tag|>";

class LlamaCalls final : public CallParser {
 public:
  explicit LlamaCalls(const ToolNames* tools) : tools_(tools), tag_(kTag) {}

  void Push(std::string_view text, AnswerWriter* out) override {
    for (const char byte : text) PushByte(byte, out);
  }

  void Finish(AnswerWriter* out) override {
    // White space and a semicolon after the last call say nothing.
    if (called_ && place_ == Place::kBefore) held_.clear();
    GiveBack(out);
    std::string text;
    tag_.Flush(&text);
    out->Text(text);
  }

  bool holds() const override { return !held_.empty() || tag_.holds(); }

 private:
  enum class Place : uint8_t {
    kBefore,  // where a call may begin: at the begin, after the tag, after a call
    kCall,
    kText,
  };

  void PushByte(char byte, AnswerWriter* out) {
    if (place_ == Place::kText) return InText(byte, out);
    if (place_ == Place::kBefore && Skips(byte)) {
      held_ += byte;
      return;
    }
    if (place_ == Place::kBefore) {
      call_.emplace(tools_, /*needs_arguments=*/true);
      place_ = Place::kCall;
    }
    const JsonCall::State state = call_->Push(byte, out);
    if (state == JsonCall::State::kBroken) {
      GiveBack(out);
      return InText(byte, out);
    }
    held_ += byte;
    if (call_->begun()) held_.clear();
    if (state == JsonCall::State::kDone) {
      called_ = true;
      place_ = Place::kBefore;
    }
  }

  bool Skips(char byte) const {
    if (IsJsonSpace(byte)) return true;
    return byte == ';' && called_ && held_.find(';') == std::string::npos;
  }

  void InText(char byte, AnswerWriter* out) {
    std::string text;
    if (tag_.Push(byte, &text)) {
      held_ = tag_.found();
      called_ = false;
      place_ = Place::kBefore;
    }
    out->Text(text);
  }

  // Through the search for the tag, which knows what to do with line breaks.
  void GiveBack(AnswerWriter* out) {
    std::string text;
    for (const char byte : std::exchange(held_, std::string())) {
      if (byte != kTag.front()) {
        tag_.Push(byte, &text);
      } else {
        tag_.Flush(&text);
        text += byte;
      }
    }
    out->Text(text);
    place_ = Place::kText;
  }

  const ToolNames* const tools_;
  Place place_ = Place::kBefore;
  MarkerScan tag_;
  std::optional<JsonCall> call_;
  bool called_ = false;  // a call ended, and nothing but calls came since
  std::string held_;     // what is text again if it turns out to be no call
};

}  // namespace

std::unique_ptr<CallParser> MakeLlamaCalls(const ToolNames* tools) {
  return std::make_unique<LlamaCalls>(tools);
}

}  // namespace quire
