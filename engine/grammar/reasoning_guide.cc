// Three places, one after the other: before the reasoning, in it, in the answer.
#include "engine/grammar/reasoning_guide.h"

#include <algorithm>
#include <span>
#include <utility>

namespace quire {
namespace {

using Words = std::span<uint32_t>;

void Set(int32_t token, Words words) {
  words[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
}
void Unset(int32_t token, Words words) {
  words[static_cast<size_t>(token / 32)] &= ~(1u << (token % 32));
}
bool Holds(const EndMarks::Mask& mask, int32_t token) {
  return (mask[static_cast<size_t>(token / 32)] >> (token % 32) & 1) != 0;
}

class Row final : public TokenGuide {
 public:
  Row(std::shared_ptr<const EndMarks> marks, const ReasoningPlan& plan,
      std::shared_ptr<const CompiledGuide> answer)
      : table_(std::move(marks)),
        marks_(table_->marks()),
        plan_(plan),
        compiled_(std::move(answer)),
        answer_(compiled_ == nullptr ? nullptr : compiled_->Start()),
        place_(plan.begun ? Place::kReasoning : Place::kBefore) {}

  void FillMask(Words words) override {
    if (place_ == Place::kReasoning) return FillReasoning(words);
    if (place_ == Place::kBefore && begun_ > 0 && answer_ != nullptr) {
      std::ranges::fill(words, 0u);
      return Set(marks_.begin[begun_], words);
    }
    FillAnswer(words);
    if (place_ == Place::kBefore && answer_ != nullptr && HasRoom(marks_.begin.size() - 1)) {
      Set(marks_.begin.front(), words);
    }
  }

  bool Accept(int32_t token) override {
    switch (place_) {
      case Place::kBefore: return AcceptBefore(token);
      case Place::kReasoning: return AcceptReasoning(token);
      case Place::kAnswer: return answer_ == nullptr || answer_->Accept(token);
    }
    return false;
  }

  bool CanEnd() const override {
    if (place_ == Place::kReasoning) return answer_ == nullptr && !Early() && !Ending();
    if (answer_ == nullptr) return true;
    return begun_ == 0 && answer_->CanEnd();
  }

  int64_t TokensToClose() const override {
    if (answer_ == nullptr || CanEnd()) return 0;
    const int64_t rest = answer_->TokensToClose();
    const auto end = static_cast<int64_t>(marks_.end.size());
    if (place_ == Place::kReasoning) return end - static_cast<int64_t>(ended_) + rest;
    if (place_ == Place::kAnswer || begun_ == 0) return rest;
    return static_cast<int64_t>(marks_.begin.size() - begun_) + end + rest;
  }

  void SetBudget(int64_t tokens_left) override {
    tokens_left_ = tokens_left;
    if (answer_ != nullptr) answer_->SetBudget(tokens_left);
  }

 private:
  enum class Place : uint8_t { kBefore, kReasoning, kAnswer };

  bool Early() const { return tokens_ < plan_.min_tokens && tokens_ < plan_.max_tokens; }
  // The end marker is being written because the reasoning is spent.
  bool Ending() const { return ended_ > 0 || tokens_ >= plan_.max_tokens || !HasRoom(0); }
  // Whether the answer still fits after one more token, `more` tokens and the end marker.
  bool HasRoom(size_t more) const {
    if (answer_ == nullptr) return true;
    const auto marks = static_cast<int64_t>(more + marks_.end.size());
    return tokens_left_ - marks >= answer_->TokensToClose();
  }

  void FillAnswer(Words words) {
    if (answer_ != nullptr) return answer_->FillMask(words);
    std::ranges::fill(words, ~0u);
    const int32_t rest = table_->vocabulary().size() % 32;
    if (rest > 0) words.back() = (1u << rest) - 1;
  }

  void FillReasoning(Words words) {
    if (Ending()) {
      std::ranges::fill(words, 0u);
      return Set(marks_.end[ended_], words);
    }
    const bool one_token = marks_.end.size() == 1;
    if (answer_ == nullptr) {
      FillAnswer(words);
      if (!Early()) return;
      for (size_t i = 0; i < words.size(); ++i) {
        words[i] &= ~(table_->ends(matched_)[i] | table_->beyond(matched_)[i]);
      }
      for (const int32_t eos : table_->vocabulary().eos_ids()) Unset(eos, words);
      if (one_token) Unset(marks_.end.front(), words);
      return;
    }
    std::ranges::copy(table_->within(matched_), words.begin());
    if (Early()) {
      if (one_token) Unset(marks_.end.front(), words);
      return;
    }
    for (size_t i = 0; i < words.size(); ++i) words[i] |= table_->ends(matched_)[i];
    if (one_token) Set(marks_.end.front(), words);
  }

  bool AcceptBefore(int32_t token) {
    const bool follows = token == marks_.begin[begun_];
    // A marker of several tokens may begin as a text of the grammar does.
    const bool sure = marks_.begin.size() == 1 || begun_ > 0 || answer_ == nullptr;
    if (!(follows && sure) && answer_ != nullptr && begun_ == 0 && answer_->Accept(token)) {
      if (!IsEos(token)) place_ = Place::kAnswer;
      return true;
    }
    if (follows) {
      if (++begun_ == marks_.begin.size()) place_ = Place::kReasoning;
      return true;
    }
    if (answer_ != nullptr) return false;
    begun_ = 0;
    if (!IsBlank(table_->vocabulary().bytes(token))) place_ = Place::kAnswer;
    return true;
  }

  bool AcceptReasoning(int32_t token) {
    const bool end_mark = marks_.end.size() == 1 && token == marks_.end.front();
    if (Ending()) {
      if (token != marks_.end[ended_]) return false;
      if (++ended_ == marks_.end.size()) place_ = Place::kAnswer;
      return true;
    }
    if (IsEos(token)) return CanEnd();
    const bool text = Holds(table_->within(matched_), token);
    const bool ends = end_mark || Holds(table_->ends(matched_), token);
    const bool beyond = Holds(table_->beyond(matched_), token);
    const bool completes = ends || (beyond && answer_ == nullptr);
    if (Early() && (ends || beyond)) return false;
    if (answer_ != nullptr && !text && !ends) return false;
    if (completes) {
      place_ = Place::kAnswer;
      return true;
    }
    matched_ = table_->After(matched_, token).value_or(0);
    ++tokens_;
    return true;
  }

  bool IsEos(int32_t token) const {
    const auto eos = table_->vocabulary().eos_ids();
    return std::ranges::find(eos, token) != eos.end();
  }
  static bool IsBlank(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
  }

  const std::shared_ptr<const EndMarks> table_;
  const ReasoningMarks& marks_;
  const ReasoningPlan plan_;
  const std::shared_ptr<const CompiledGuide> compiled_;
  const std::unique_ptr<TokenGuide> answer_;  // null: free
  Place place_;
  size_t begun_ = 0;    // tokens of the begin marker
  size_t ended_ = 0;    // tokens of the end marker that was made to come
  size_t matched_ = 0;  // bytes of the end marker that the reasoning ends with
  int64_t tokens_ = 0;  // of the reasoning
  int64_t tokens_left_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

ReasoningGuide::ReasoningGuide(std::shared_ptr<const EndMarks> marks, const ReasoningPlan& plan,
                               std::shared_ptr<const CompiledGuide> answer)
    : marks_(std::move(marks)), plan_(plan), answer_(std::move(answer)) {}

std::unique_ptr<TokenGuide> ReasoningGuide::Start() const {
  return std::make_unique<Row>(marks_, plan_, answer_);
}

size_t ReasoningGuide::bytes() const {
  return sizeof *this + marks_->bytes() + (answer_ == nullptr ? 0 : answer_->bytes());
}

}  // namespace quire
