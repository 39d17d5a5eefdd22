// Mistral: [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], and since its tokenizer's version
// 11 [TOOL_CALLS]NAME[ARGS]{...} for each call, with [CALL_ID]ID before the arguments or not.
#include <algorithm>
#include <optional>
#include <utility>

#include "server/answer_parts/call_format.h"
#include "server/answer_parts/json_extent.h"
#include "server/answer_parts/marker_scan.h"

namespace quire {
namespace {

constexpr std::string_view kMark = "[TOOL_CALLS]", kCallId = "[CALL_ID]", kArgs = "[ARGS]";

class MistralCalls final : public CallParser {
 public:
  explicit MistralCalls(const ToolNames* tools) : tools_(tools), mark_(kMark) {}

  void Push(std::string_view text, AnswerWriter* out) override {
    for (const char byte : text) PushByte(byte, out);
  }

  void Finish(AnswerWriter* out) override { GiveBack(out); }

  bool holds() const override { return !held_.empty() || mark_.holds(); }

 private:
  enum class Place : uint8_t {
    kText,
    kHead,       // after the mark: a list, or a name
    kItem,       // where a call of a list begins
    kCall,       // in such a call
    kNext,       // after it: a comma, or the end of the list
    kName,       // a name, marks and an id, up to the arguments
    kArguments,  // of a call by name
    kGap,        // after all calls
  };

  // Held text that turns out to be no call is given back, and `byte` is text again.
  void PushByte(char byte, AnswerWriter* out) {
    if (place_ == Place::kGap && !IsLineBreak(byte)) place_ = Place::kText;
    if (place_ == Place::kGap) return;
    if (place_ == Place::kText) return InText(byte, out);
    if (place_ == Place::kArguments) return InArguments(byte, out);
    const Place before = place_;
    const bool good = place_ == Place::kName ? InName(byte, out) : InList(byte, out);
    if (!good) {
      GiveBack(out);
      return InText(byte, out);
    }
    const bool written = place_ == Place::kArguments || place_ == Place::kGap ||
                         (place_ == Place::kCall && call_->begun()) ||
                         (place_ == Place::kNext && before == Place::kCall);
    if (written) {
      held_.clear();
    } else {
      held_ += byte;
    }
  }

  void InText(char byte, AnswerWriter* out) {
    std::string text;
    if (mark_.Push(byte, &text)) {
      held_ = mark_.found();
      head_.clear();
      place_ = Place::kHead;
    }
    out->Text(text);
  }

  bool InList(char byte, AnswerWriter* out) {
    if (place_ == Place::kCall) return InCall(byte, out);
    if (IsJsonSpace(byte)) return true;
    switch (place_) {
      case Place::kHead:
        if (byte != '[') {
          place_ = Place::kName;
          return InName(byte, out);
        }
        place_ = Place::kItem;
        return true;
      case Place::kItem:
        call_.emplace(tools_, /*needs_arguments=*/false);
        place_ = Place::kCall;
        return InCall(byte, out);
      default:  // kNext
        place_ = byte == ',' ? Place::kItem : Place::kGap;
        return byte == ',' || byte == ']';
    }
  }

  bool InCall(char byte, AnswerWriter* out) {
    const JsonCall::State state = call_->Push(byte, out);
    if (state == JsonCall::State::kDone) place_ = Place::kNext;
    return state != JsonCall::State::kBroken;
  }

  // The arguments begin with the first brace: no name, mark or id has one.
  bool InName(char byte, AnswerWriter* out) {
    if (byte != '{') {
      head_ += byte;
      return CouldBeHead();
    }
    std::optional<std::string> name = NameOfHead();
    if (!name) return false;
    out->BeginCall(*std::move(name));
    out->Arguments("{");
    extent_.Begin('{');
    place_ = Place::kArguments;
    return true;
  }

  // Up to its first bracket the head is the begin of a tool's name.
  bool CouldBeHead() const {
    const std::string_view name = std::string_view(head_).substr(0, head_.find('['));
    const auto at = tools_->lower_bound(name);
    if (at == tools_->end() || !at->starts_with(name)) return false;
    if (name.size() == head_.size()) return true;
    const std::string_view rest = std::string_view(head_).substr(name.size());
    if (!tools_->contains(name)) return false;
    if (rest.size() <= kArgs.size() && kArgs.starts_with(rest)) return true;
    const size_t common = std::min(rest.size(), kCallId.size());
    return rest.substr(0, common) == kCallId.substr(0, common);
  }

  std::optional<std::string> NameOfHead() const {
    std::string_view head = head_;
    if (head.ends_with(kArgs)) head.remove_suffix(kArgs.size());
    head = head.substr(0, head.find(kCallId));
    if (!tools_->contains(head)) return std::nullopt;
    return std::string(head);
  }

  void InArguments(char byte, AnswerWriter* out) {
    out->Arguments({&byte, 1});
    if (!extent_.Push(byte)) return;
    out->EndCall();
    place_ = Place::kGap;
  }

  void GiveBack(AnswerWriter* out) {
    std::string text = std::exchange(held_, std::string());
    if (place_ == Place::kText) mark_.Flush(&text);
    out->Text(text);
    place_ = Place::kText;
  }

  const ToolNames* const tools_;
  Place place_ = Place::kText;
  MarkerScan mark_;
  std::optional<JsonCall> call_;
  JsonExtent extent_;
  std::string head_;  // between the mark and the arguments
  std::string held_;  // what is text again if it turns out to be no call
};

}  // namespace

std::unique_ptr<CallParser> MakeMistralCalls(const ToolNames* tools) {
  return std::make_unique<MistralCalls>(tools);
}

}  // namespace quire
