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
  uint64_t wanted_at = 0;  // the next step when its last mask was asked for
  LateDraws late;
  bool awaited = false;  // a draw had no mask: it is planned again when its mask is there
};

class DrawMasks {
 public:
  // As Scheduler::SetMaskBoard.
  void SetBoard(const MaskBoard* board) { board_ = board == nullptr ? MaskBoard() : *board; }
  // Before the plan is published.
  void OpenEntries(const StepPlan& plan) const;

  // Asks for the mask of the draw behind `output`, which can have `tokens_left` tokens more, and
  // gives up the guide until Take. `next_step`: the number of the step that is planned next.
  void AskFor(SequenceMasks& masks, std::span<const int32_t> output, int64_t tokens_left,
              uint64_t next_step);
  // The next guide whose mask is to be made; null if there is none.
  std::unique_ptr<OutputGuide> Next();
  // Gives the sequence, of `num_known` tokens, its guide back, with the mask that it asked for.
  void Take(SequenceMasks& masks, std::unique_ptr<OutputGuide> guide, int32_t num_known,
            uint64_t next_step);
  // No draw in flight gets a mask any more.
  void Withhold(SequenceMasks& masks) const { masks.late.Withhold(board_); }

  uint64_t late() const { return late_; }  // a step ran or was planned without their draws

 private:
  MaskBoard board_;
  std::deque<std::unique_ptr<OutputGuide>> unmade_;
  uint64_t late_ = 0;
};

}  // namespace quire
