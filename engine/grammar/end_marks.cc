// A search by Knuth, Morris and Pratt, run for each token from each place.
#include "engine/grammar/end_marks.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {
namespace {

// The longest begin of `marker` that `place` bytes of it and then `byte` end with.
size_t Next(std::string_view marker, size_t place, char byte) {
  std::string tail(marker.substr(0, place));
  tail += byte;
  for (size_t size = tail.size(); size > 0; --size) {
    if (std::string_view(tail).ends_with(marker.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

EndMarks::EndMarks(ReasoningMarks marks, std::shared_ptr<const GuideVocabulary> vocabulary)
    : marks_(std::move(marks)), vocabulary_(std::move(vocabulary)) {
  CHECK(!marks_.begin.empty() && !marks_.end.empty() && !marks_.end_text.empty());
  const Mask none(vocabulary_->mask_words(), 0);
  for (size_t place = 0; place < marks_.end_text.size(); ++place) {
    for (size_t byte = 0; byte < 256; ++byte) {
      next_.push_back(Next(marks_.end_text, place, static_cast<char>(byte)));
    }
  }
  masks_.resize(marks_.end_text.size(), {none, none, none});
  for (size_t place = 0; place < masks_.size(); ++place) {
    for (int32_t token = 0; token < vocabulary_->size(); ++token) {
      const std::string_view text = vocabulary_->bytes(token);
      if (text.empty()) continue;
      size_t after = place;
      const std::optional<size_t> taken = Complete(text, &after);
      Masks& masks = masks_[place];
      Mask& mask = !taken ? masks.within : *taken == text.size() ? masks.ends : masks.beyond;
      mask[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
    }
  }
}

std::optional<size_t> EndMarks::Complete(std::string_view text, size_t* place) const {
  for (size_t i = 0; i < text.size(); ++i) {
    *place = next_[*place * 256 + static_cast<uint8_t>(text[i])];
    if (*place == marks_.end_text.size()) return i + 1;
  }
  return std::nullopt;
}

std::optional<size_t> EndMarks::After(size_t place, int32_t token) const {
  if (marks_.end.size() == 1 && token == marks_.end.front()) return std::nullopt;
  if (Complete(vocabulary_->bytes(token), &place)) return std::nullopt;
  return place;
}

}  // namespace quire
