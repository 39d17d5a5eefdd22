// Guesser: the likely next tokens of one sequence, and how often they were right of late.
//
// Prompt lookup: the tokens that followed where the last ones stood before. `next` is that place;
// it moves along with each right guess, and is looked up again after each wrong one. Every token
// that becomes known is compared with its guess, whether a step verified it or not: so the record
// says what guessing would gain before it costs anything.
//
// Guess is the one place where guesses come from: a draft model would answer there.
//
// Reads the text of its sequence, which only grows, and never keeps it. One thread; allocates in
// the constructor only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/guess/known_text.h"
#include "engine/schedule/guess/suffix_index.h"

namespace quire {

class Guesser {
 public:
  // For a text of at most `max_tokens` tokens, and at most `most` guesses at once.
  Guesser(int32_t max_tokens, int32_t most);

  // Reads up to `budget` tokens of the text that are not read yet, and returns how many. Until all
  // are read there are no guesses.
  int32_t Read(const KnownText& text, int32_t budget);
  // The text has one token more, behind everything that OnToken or Read has seen.
  void OnToken(const KnownText& text);

  // Tokens that a step with at most `most` guesses yields, as guesses were right of late; 1 if
  // there is no guess now.
  double Yield(int32_t most) const;
  // How many tokens a step should guess: twice as many after each step whose guesses were all
  // right, and one more than were right after another.
  int32_t length() const { return length_; }
  // Guesses `count` tokens behind the text. They are in flight until EndStep.
  void Guess(const KnownText& text, int32_t count);
  std::span<const int32_t> in_flight() const { return guesses_; }
  // The step has verified them; `accepted` of them were right.
  void EndStep(int32_t accepted);

  // Set for the step that is planned now: the sequence runs only together with its guesses.
  bool chosen = false;

 private:
  static constexpr int32_t kFirstLength = 4;
  static constexpr double kWeight = 0.125;  // of the last token in the record

  const int32_t most_;
  SuffixIndex index_;
  int32_t next_ = SuffixIndex::kNone;  // where the guess of the next token stands
  double right_ = 0;                   // share of late tokens that were guessed right
  int32_t length_;
  std::vector<int32_t> guesses_;  // in flight
};

}  // namespace quire
