// Prompt lookup and its record.
#include "engine/schedule/guess/guesser.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

Guesser::Guesser(int32_t max_tokens, int32_t most)
    : most_(most), index_(max_tokens), length_(std::min(kFirstLength, most)) {
  CHECK_GT(most, 0);
  guesses_.reserve(static_cast<size_t>(most));
}

int32_t Guesser::Read(const KnownText& text, int32_t budget) {
  const int32_t before = index_.entered();
  if (before >= text.size() || budget <= 0) return 0;
  index_.Enter(text, std::min(text.size(), before + budget));
  if (index_.entered() == text.size()) next_ = index_.Find(text);
  return index_.entered() - before;
}

void Guesser::OnToken(const KnownText& text) {
  const int32_t end = text.size();
  if (index_.entered() < end - 1) return;  // the beginning is not read yet
  const bool right = next_ != SuffixIndex::kNone && text[next_] == text[end - 1];
  right_ += kWeight * ((right ? 1.0 : 0.0) - right_);
  next_ = right ? next_ + 1 : index_.Find(text);
  index_.Enter(text, end);
}

double Guesser::Yield(int32_t most) const {
  if (next_ == SuffixIndex::kNone) return 1;
  double tokens = 0;
  for (int32_t i = std::min(most, most_); i >= 0; --i) tokens = 1 + right_ * tokens;
  return tokens;
}

// Where the earlier place runs into the end of the text, the text repeats itself, and so do the
// guesses.
void Guesser::Guess(const KnownText& text, int32_t count) {
  CHECK(guesses_.empty() && next_ != SuffixIndex::kNone && count <= most_);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t place = next_ + i;
    const int32_t beyond = place - text.size();
    guesses_.push_back(beyond < 0 ? text[place] : guesses_[static_cast<size_t>(beyond)]);
  }
}

void Guesser::EndStep(int32_t accepted) {
  const auto guessed = static_cast<int32_t>(guesses_.size());
  length_ = accepted == guessed ? std::min(most_, std::max(length_, 2 * guessed)) : accepted + 1;
  guesses_.clear();
}

}  // namespace quire
