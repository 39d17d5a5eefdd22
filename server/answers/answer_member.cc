// Frames with the answer's index, and its end to where it belongs.
#include "server/answers/answer_member.h"

namespace quire {

std::optional<Usage> AnswerGroup::Add(const Usage& usage) {
  const std::lock_guard lock(mutex_);
  AddUsage(usage, &sum_);
  return --left_ == 0 ? std::optional(sum_) : std::nullopt;
}

class AnswerMember::Format final : public FrameFormat {
 public:
  Format(const std::string& model_name, uint32_t index) : model_name_(model_name), index_(index) {}

  uint32_t index() const { return index_; }
  void Join(std::shared_ptr<AnswerGroup> group) { group_ = std::move(group); }

  std::optional<std::string> Accepted(const AcceptedFrame& accepted) override {
    if (index_ > 0) return std::nullopt;
    return EncodeAccepted(model_name_, accepted, group_->counts());
  }
  std::optional<std::string> Tokens(const OutputDelta& delta,
                                    const OutputOptions& output) override {
    const AnswerPlace place{.index = index_};
    return EncodeTokens(delta, output, &place);
  }
  std::optional<std::string> End(const EndFrame& end) override {
    const std::optional<Usage> all = group_->Add(end.finish.usage);
    const AnswerPlace place{index_, all.has_value() ? &*all : nullptr};
    return EncodeFinished(end, &place);
  }
  absl::Status CheckSize(int64_t, int64_t) const override { return absl::OkStatus(); }

 private:
  const std::string& model_name_;
  const uint32_t index_;
  std::shared_ptr<AnswerGroup> group_;  // null: the call is refused, without a frame
};

AnswerMember::AnswerMember(const GenerateResources* resources, SharedWriter* writer, uint32_t index,
                           const GenerationStream::Origin& origin,
                           std::unique_ptr<RequestTrace> trace)
    : AnswerMember(resources, writer, std::make_unique<Format>(resources->model.name, index),
                   origin, std::move(trace)) {}

AnswerMember::AnswerMember(const GenerateResources* resources, SharedWriter* writer,
                           std::unique_ptr<Format> format, const GenerationStream::Origin& origin,
                           std::unique_ptr<RequestTrace> trace)
    : StreamMember(resources, writer, std::move(format), origin, std::move(trace)),
      format_(static_cast<Format*>(&this->format())) {}

void AnswerMember::Join(std::shared_ptr<AnswerGroup> group, std::shared_ptr<HeldAnswers> held) {
  format_->Join(std::move(group));
  held_ = std::move(held);
}

void AnswerMember::Written(bool ok) {
  if (held_ != nullptr && held_->Written(format_->index(), ok)) return;
  StreamMember::Written(ok);
}

void AnswerMember::Cancel() {
  const std::shared_ptr<HeldAnswers> held = held_;
  const uint32_t index = format_->index();
  StreamMember::Cancel();
  if (held != nullptr) held->Drop(index);
}

void AnswerMember::WriteEnd(const EndFrame& end) {
  if (held_ == nullptr) return StreamMember::WriteEnd(end);
  const std::shared_ptr<HeldAnswers> held = held_;  // this may be gone before it returns
  held->Take(format_->index(), this, stream(), end);
}

absl::Status AnswerMember::CheckSize(int64_t bytes) const {
  return held_ == nullptr ? absl::OkStatus() : held_->CheckSize(format_->index(), bytes);
}

}  // namespace quire
