// StepCost: the time of a step as a sum over what it computes. Measured on the running server
// (engine/schedule/pace/step_cost_fit.h); plain data, all times in seconds and never negative.
#pragma once

namespace quire {

// The work of a step, in tokens.
struct StepShape {
  double rows = 0;           // sequences that compute one token: they decode
  double contexts = 0;       // known tokens of these, together
  double prompt_tokens = 0;  // of prompts
  double prompt_reads = 0;   // for each of these, the tokens before it: what its attention reads

  // A sequence computes `count` tokens from position `start` on.
  void Add(double start, double count) {
    if (count == 1) {
      rows += 1;
      contexts += start + 1;
    } else {
      prompt_tokens += count;
      prompt_reads += count * (start + 0.5 * count);
    }
  }
  // A sequence that decodes computes `count` tokens, guesses included. It reads its context once.
  void AddGuesses(double start, double count) {
    rows += count;
    contexts += start + count;
  }
};

struct StepCost {
  double step = 0;  // of every step
  double row = 0;
  double context = 0;
  double prompt_token = 0;
  double prompt_read = 0;
  bool known = false;  // enough steps were measured

  double Seconds(const StepShape& shape) const {
    return step + row * shape.rows + context * shape.contexts + prompt_token * shape.prompt_tokens +
           prompt_read * shape.prompt_reads;
  }
};

}  // namespace quire
