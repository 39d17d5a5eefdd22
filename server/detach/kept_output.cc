// All parts lie one after the other; a token is the ends of its parts.
#include "server/detach/kept_output.h"

#include <algorithm>
#include <utility>

namespace quire {

void KeptOutput::Add(OutputDelta& output) {
  int64_t bytes = EndOf(end()).bytes + output.bytes();
  ids_.Append(output.token_ids);
  logprobs_.Append(output.logprobs);
  scores_.Append(output.scores);
  text_.Append(output.text);
  reasoning_.Append(output.reasoning);
  calls_.Append(output.calls);
  if (!output.prompt_scores.empty()) prompt_scores_ = std::move(output.prompt_scores);
  if (output.tokens > 0) {
    ids_each_ = output.token_ids.size();
    logprobs_each_ = output.logprobs.size();
    scores_each_ = output.scores.size();
    bytes += static_cast<int64_t>(sizeof(Mark));
    marks_.emplace_back();
  }
  output.Clear();
  if (marks_.empty()) return;
  marks_.back() = {text_.end(), reasoning_.end(), calls_.end(), bytes};
}

const KeptOutput::Mark& KeptOutput::EndOf(uint32_t tokens) const {
  return tokens == begin_ ? forgotten_ : marks_[tokens - begin_ - 1];
}

void KeptOutput::Copy(uint32_t from, uint32_t to, int64_t max_bytes, bool with_prompt,
                      OutputDelta* out) const {
  const Mark& first = EndOf(from);
  if (to > from) {
    const auto begin = marks_.begin() + (from - begin_);
    const auto fits =
        std::upper_bound(begin, marks_.begin() + (to - begin_), first.bytes + max_bytes,
                         [](int64_t most, const Mark& mark) { return most < mark.bytes; });
    to = from + std::max<uint32_t>(static_cast<uint32_t>(fits - begin), 1);
  }
  const Mark& last = EndOf(to);
  ids_.Copy(from * ids_each_, to * ids_each_, &out->token_ids);
  logprobs_.Copy(from * logprobs_each_, to * logprobs_each_, &out->logprobs);
  scores_.Copy(from * scores_each_, to * scores_each_, &out->scores);
  text_.Copy(first.text, last.text, &out->text);
  reasoning_.Copy(first.reasoning, last.reasoning, &out->reasoning);
  for (auto call = calls_.At(first.calls); call != calls_.At(last.calls); ++call) {
    AppendCall(*call, &out->calls);
  }
  if (with_prompt) out->prompt_scores = prompt_scores_;
  out->tokens = to - from;
  out->cumulative = to;
}

void KeptOutput::ForgetTo(uint32_t tokens) {
  tokens = std::min(tokens, std::max(end(), uint32_t{1}) - 1);
  if (tokens <= begin_) return;
  forgotten_ = EndOf(tokens);
  marks_.erase(marks_.begin(), marks_.begin() + (tokens - begin_));
  begin_ = tokens;
  ids_.ForgetTo(tokens * ids_each_);
  logprobs_.ForgetTo(tokens * logprobs_each_);
  scores_.ForgetTo(tokens * scores_each_);
  text_.ForgetTo(forgotten_.text);
  reasoning_.ForgetTo(forgotten_.reasoning);
  calls_.ForgetTo(forgotten_.calls);
}

int64_t KeptOutput::BytesFrom(uint32_t from) const {
  return EndOf(end()).bytes - EndOf(from).bytes;
}

}  // namespace quire
