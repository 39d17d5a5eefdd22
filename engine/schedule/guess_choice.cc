// The choice of guesses. O(running rows) a step, and nothing where no request guesses.
#include "engine/schedule/guess_choice.h"

#include <algorithm>

namespace quire {

// A mask is for one position, and a reading of drawn tokens for one row of logits: neither has
// several in a step.
bool GuessChoice::MayGuess(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  return request.max_guesses > 0 && !sequence.guided() && !request.reading.of_output();
}

void GuessChoice::OnToken(Sequence& sequence) {
  if (sequence.guesser != nullptr) return sequence.guesser->OnToken(TextOf(sequence));
  const bool running = sequence.state == SequenceState::kRunning;
  if (!running || num_guessers_ >= config_.step_guesses || !MayGuess(sequence)) return;
  const int32_t most = std::min(sequence.request->max_guesses, config_.step_guesses);
  sequence.guesser = std::make_unique<Guesser>(sequence.hard_end, most);
  ++num_guessers_;
}

void GuessChoice::Begin() {
  share_ = 0;
  if (num_guessers_ == 0) return;
  const auto num_running = static_cast<int32_t>(sequences_.running().size());
  num_guessers_ = 0;
  in_flight_ = false;
  int32_t budget = kReadPerStep;
  for (Sequence* sequence : sequences_.running()) {
    Guesser* const guesser = sequence->guesser.get();
    if (guesser == nullptr) continue;
    ++num_guessers_;
    in_flight_ = in_flight_ || !guesser->in_flight().empty();
    budget -= guesser->Read(TextOf(*sequence), budget);
  }
  // One token of each row comes first.
  const int32_t room =
      std::min(config_.step_guesses + 1, config_.max_num_batched_tokens) - num_running;
  if (Choose(kLeastAlone, room) < num_running) Choose(kLeastBeside, room);
}

int32_t GuessChoice::Choose(double least, int32_t room) {
  const int32_t willing = Mark(least, room);
  if (willing == 0) return 0;
  share_ = room / willing;
  return Mark(least, share_);
}

// Chooses the rows that are expected to yield `least` with `most` guesses each.
int32_t GuessChoice::Mark(double least, int32_t most) {
  int32_t chosen = 0;
  for (Sequence* sequence : sequences_.running()) {
    Guesser* const guesser = sequence->guesser.get();
    if (guesser == nullptr) continue;
    const int32_t left = sequence->hard_end - sequence->known() - 1;
    const bool decodes = sequence->remaining() <= 1;
    guesser->chosen = decodes && guesser->Yield(std::min(most, left)) >= least;
    chosen += guesser->chosen;
  }
  return chosen;
}

bool GuessChoice::HoldsBack(const Sequence& sequence) const {
  const Guesser* const guesser = sequence.guesser.get();
  if (guesser == nullptr) return false;
  return guesser->chosen ? sequence.pending > 0 || in_flight_ : !guesser->in_flight().empty();
}

int32_t GuessChoice::Take(Sequence& sequence) {
  Guesser* const guesser = sequence.guesser.get();
  if (share_ == 0 || guesser == nullptr || !guesser->chosen) return 0;
  const int32_t left = sequence.hard_end - sequence.known() - 1;
  const int32_t guesses = Fitting(sequence, std::min({share_, guesser->length(), left}));
  guesser->Guess(TextOf(sequence), guesses);
  return guesses;
}

// As many of the guesses as the sequence's blocks hold behind its next token, with free ones added.
int32_t GuessChoice::Fitting(Sequence& sequence, int32_t guesses) {
  const auto held = [&] {
    return static_cast<int32_t>(sequence.blocks.size()) * config_.block_size - sequence.planned - 1;
  };
  while (held() < guesses && sequences_.TakeBlock(sequence)) {
  }
  return std::clamp(guesses, 0, held());
}

}  // namespace quire
