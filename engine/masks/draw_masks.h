// DrawMasks: the masks of draws that follow guides. A mask is asked for when the tokens before its
// draw are known, and made elsewhere. It goes into the next plan with the draw, or to the mask
// board if the draw was planned before. O(1) a call. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "engine/masks/late_draws.h"
#include "engine/masks/output_guide.h"
#include "engine/values/mask_board.h"
#include "engine/values/step_plan.h"

namespace quire {

// Of one sequence with a guide.
struct SequenceMasks {
  // With the mask of the next draw. Null while the mask is made, and without a guide.
  std::unique_ptr<OutputGuide> guide;
  int64_t asked_ns = 0;    // when its last mask was asked for
  uint64_t wanted_at = 0;  // the next step then; 0: a step has run without this mask
  LateDraws late;
  // A draw had no mask in time, `patience_ns` after it was asked for. Until a mask is made as soon
  // as that, but for at most kEarlyDraws, draws are planned when their masks are there: planned
  // late, every second one of a slow guide would hold up its step in vain.
  bool awaited = false;
  int64_t patience_ns = 0;
  int32_t early_draws = 0;
};

class DrawMasks {
 public:
  // Then a draw is planned late again: steps may take longer by now.
  static constexpr int32_t kEarlyDraws = 16;

  struct Now {
    uint64_t next_step = 0;  // the number of the step that is planned next
    int64_t ns = 0;
  };

  // As Scheduler::SetMaskBoard.
  void SetBoard(const MaskBoard* board) { board_ = board == nullptr ? MaskBoard() : *board; }
  // Before the plan is published.
  void OpenEntries(const StepPlan& plan) const;

  // Asks for the mask of the draw behind `output`, which can have `tokens_left` tokens more, and
  // gives up the guide until Take.
  void AskFor(SequenceMasks& masks, std::span<const int32_t> output, int64_t tokens_left, Now now);
  // The next guide whose mask is to be made; null if there is none.
  std::unique_ptr<OutputGuide> Next();
  // Gives the sequence, of `num_known` tokens, its guide back, with the mask that it asked for.
  void Take(SequenceMasks& masks, std::unique_ptr<OutputGuide> guide, int32_t num_known, Now now);
  // No draw in flight gets a mask any more: the sequence ends.
  void Withhold(SequenceMasks& masks, int64_t now_ns) const { masks.late.Withhold(now_ns, board_); }
  // Likewise, because a step ran or is to end without its draw's mask.
  void Lose(SequenceMasks& masks, int64_t now_ns) const;

  uint64_t late() const { return late_; }  // a step ran or was planned without their draws

 private:
  MaskBoard board_;
  std::deque<std::unique_ptr<OutputGuide>> unmade_;
  uint64_t late_ = 0;
};

}  // namespace quire
