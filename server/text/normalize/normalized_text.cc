// The bookkeeping of origins follows NormalizedString of the `tokenizers` package step by step, so
// that offsets are equal in odd cases too.
#include "server/text/normalize/normalized_text.h"

#include <algorithm>

#include "server/text/unicode/unicode.h"

namespace quire {

TokenOffset Passage::ToSource(size_t begin, size_t end) const {
  if (!origin.empty()) return {origin[begin].begin, origin[end - 1].end};
  return {static_cast<int32_t>(base + CodePointBegin(text, begin)),
          static_cast<int32_t>(base + CodePointEnd(text, end - 1))};
}

Passage Passage::Slice(size_t begin, size_t end) const {
  return {text.substr(begin, end - begin), origin.empty() ? base + begin : base,
          origin.empty() ? origin : origin.subspan(begin, end - begin)};
}

void NormalizedText::Reset(const Passage& passage, bool tracked) {
  text_.assign(passage.text);
  tracked_ = tracked;
  base_ = passage.base;
  origin_.clear();
  if (!tracked) return;
  origin_.reserve(text_.size());
  for (size_t i = 0; i < text_.size(); ++i) origin_.push_back(passage.ToSource(i, i + 1));
}

void NormalizedText::Transform(std::span<const CharChange> changes, size_t num_removed) {
  next_text_.clear();
  next_origin_.clear();
  size_t at = 0;  // where the old text is read
  const auto skip = [&](size_t count) {
    for (; count > 0 && at < text_.size(); --count) at = CodePointEnd(text_, at);
  };
  if (tracked_) skip(num_removed);
  const auto start = static_cast<int32_t>(base_);
  for (const CharChange& c : changes) {
    AppendUtf8(c.value, &next_text_);
    if (!tracked_) continue;
    // An inserted code point belongs to the one before it.
    const size_t from = c.change > 0 ? at - 1 : std::min(at, origin_.size() - 1);
    const bool first = origin_.empty() || (c.change > 0 && at == 0);
    next_origin_.resize(next_text_.size(), first ? TokenOffset{start, start} : origin_[from]);
    if (c.change <= 0) skip(1 + static_cast<size_t>(-c.change));
  }
  text_.swap(next_text_);
  origin_.swap(next_origin_);
}

void NormalizedText::Prepend(std::string_view prefix) {
  if (text_.empty()) return;
  text_.insert(0, prefix);
  if (tracked_) origin_.insert(origin_.begin(), prefix.size(), TokenOffset(origin_.front()));
}

void NormalizedText::Replace(std::span<const Span> matches, std::string_view content) {
  next_text_.clear();
  next_origin_.clear();
  size_t copied = 0;  // of the old text
  const auto copy_to = [&](size_t end) {
    next_text_.append(text_, copied, end - copied);
    if (tracked_) {
      next_origin_.insert(next_origin_.end(), origin_.begin() + static_cast<ptrdiff_t>(copied),
                          origin_.begin() + static_cast<ptrdiff_t>(end));
    }
    copied = end;
  };
  for (const Span& match : matches) {
    copy_to(match.begin);
    next_text_.append(content);
    if (tracked_) next_origin_.resize(next_text_.size(), origin_[match.end - 1]);
    copied = match.end;
  }
  copy_to(text_.size());
  text_.swap(next_text_);
  origin_.swap(next_origin_);
}

}  // namespace quire
