// KeptOutput: the output of one stream, kept so that what comes behind any of its tokens can be
// sent again. Each token has the text, reasoning and pieces of tool calls that became certain with
// it. The oldest tokens can be forgotten. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "server/generate/stream_outlet.h"

namespace quire {

// A row of items that is numbered from its begin on, and forgets from there.
template <typename Items>
class Tape {
 public:
  uint64_t end() const { return forgotten_ + items_.size() - dead_; }
  void Append(const Items& more) { items_.insert(items_.end(), more.begin(), more.end()); }
  // Appends the items from `from` to `to` to `out`.
  void Copy(uint64_t from, uint64_t to, Items* out) const {
    out->insert(out->end(), At(from), At(to));
  }
  auto At(uint64_t place) const {
    return items_.begin() + static_cast<std::ptrdiff_t>(place - forgotten_ + dead_);
  }
  // The memory is freed in large pieces.
  void ForgetTo(uint64_t place) {
    dead_ += place - forgotten_;
    forgotten_ = place;
    if (dead_ < items_.size() / 2) return;
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(dead_));
    items_.shrink_to_fit();
    dead_ = 0;
  }

 private:
  Items items_;
  uint64_t forgotten_ = 0;
  uint64_t dead_ = 0;  // at the begin of items_, forgotten
};

class KeptOutput {
 public:
  // Takes one token, or text of none, which belongs to the last one; clears `output`.
  void Add(OutputDelta& output);

  // The kept tokens: those behind the first begin() up to the end()th.
  uint32_t begin() const { return begin_; }
  uint32_t end() const { return begin_ + static_cast<uint32_t>(marks_.size()); }
  bool has_prompt_scores() const { return !prompt_scores_.empty(); }

  // Appends what comes behind the first `from` tokens, up to the `to`th, to the empty `out`: at
  // most `max_bytes`, but at least one token if there is one. The scores of the prompt come along
  // if `with_prompt`.
  void Copy(uint32_t from, uint32_t to, int64_t max_bytes, bool with_prompt,
            OutputDelta* out) const;
  // Forgets the first `tokens` tokens, the last one that came aside.
  void ForgetTo(uint32_t tokens);

  // The memory that the kept tokens take, and that of those behind the first `from`.
  int64_t bytes() const { return BytesFrom(begin_) + prompt_bytes(); }
  int64_t BytesFrom(uint32_t from) const;

 private:
  // The ends of a token's parts, counted from the begin of the output. Other parts are as long for
  // each token as for the first.
  struct Mark {
    uint64_t text = 0, reasoning = 0;
    uint64_t calls = 0;
    int64_t bytes = 0;
  };
  // The ends of the first `tokens` tokens.
  const Mark& EndOf(uint32_t tokens) const;
  int64_t prompt_bytes() const {
    return static_cast<int64_t>(prompt_scores_.size() * sizeof(uint32_t));
  }

  uint64_t ids_each_ = 0, logprobs_each_ = 0, scores_each_ = 0;  // of a token
  Tape<std::vector<uint32_t>> ids_;
  Tape<std::vector<float>> logprobs_;
  Tape<std::vector<uint32_t>> scores_;
  Tape<std::string> text_;
  Tape<std::string> reasoning_;
  Tape<std::vector<ToolCallPart>> calls_;
  std::vector<uint32_t> prompt_scores_;
  uint32_t begin_ = 0;
  Mark forgotten_;  // the ends of the first begin_ tokens
  std::deque<Mark> marks_;
};

}  // namespace quire
