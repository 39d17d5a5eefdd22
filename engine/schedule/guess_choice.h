// GuessChoice: which decoding rows guess in a step, and how many tokens.
//
// A row without guesses has a token in every step, two steps in flight. A row with guesses runs
// when its last token is known, so it has no step in flight while that is on its way. Two cases
// follow from that. If every running row guesses, one step is in flight at a time, and guessing
// gains as soon as a step yields more than one token. Beside rows that do not guess, a guessing row
// is in every second step and has to yield more than two. Rows that guess do so in the same steps.
//
// Guesses are nearly free while a step waits for the weights' read, and the more rows decode, the
// fewer fit into that. So decoding rows and guesses of a step together are bounded: above as many
// rows as the bound, no row guesses (docs/speculation.md has the arithmetic).
//
// A row takes the memory of its look-up with its first token, and keeps it while it runs; steps
// allocate nothing. There are as many look-ups as a step has guesses at most.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/guess/known_text.h"
#include "engine/schedule/live_sequences.h"
#include "engine/schedule/sequence.h"
#include "engine/values/scheduler_config.h"

namespace quire {

class GuessChoice {
 public:
  // Tokens that a step must be expected to yield, with some room for what a step alone costs.
  static constexpr double kLeastAlone = 1.5;
  static constexpr double kLeastBeside = 2.5;
  // Tokens of long texts that are read into the look-up for each step: less than a millisecond.
  static constexpr int32_t kReadPerStep = 4096;

  // `sequences` outlives this.
  GuessChoice(const SchedulerConfig& config, LiveSequences& sequences)
      : config_(config), sequences_(sequences) {}

  // A token of the sequence has become known, and it goes on.
  void OnToken(Sequence& sequence);

  // Begins the choice for a step: which running rows guess.
  void Begin();
  // The row is left out of this step: it guesses, and its last token or the result of other guesses
  // is on its way.
  bool HoldsBack(const Sequence& sequence) const;
  // Guesses for a row of the step, which has the blocks for its next token, and returns how many;
  // takes blocks that are free, and none from another sequence.
  int32_t Take(Sequence& sequence);

 private:
  static KnownText TextOf(const Sequence& sequence) {
    return {sequence.request->prompt, sequence.output};
  }
  bool MayGuess(const Sequence& sequence) const;
  // Chooses the rows that are expected to yield `least` with their share of `room` guesses, and
  // returns how many.
  int32_t Choose(double least, int32_t room);
  int32_t Mark(double least, int32_t most);
  int32_t Fitting(Sequence& sequence, int32_t guesses);

  const SchedulerConfig config_;
  LiveSequences& sequences_;
  int32_t num_guessers_ = 0;
  int32_t share_ = 0;       // guesses of a row in the step
  bool in_flight_ = false;  // a step with guesses is
};

}  // namespace quire
