// Masks on their way to plans and to the board.
#include "engine/masks/draw_masks.h"

#include <utility>

namespace quire {

void DrawMasks::OpenEntries(const StepPlan& plan) const {
  for (int32_t i = 0; i < plan.num_late_masks; ++i) board_.Open(plan.step, i);
}

void DrawMasks::AskFor(SequenceMasks& masks, std::span<const int32_t> output, int64_t tokens_left,
                       Now now) {
  if (output.empty()) {
    masks.guide->AskFirst(tokens_left);
  } else {
    masks.guide->AskAfter(output.back(), tokens_left);
  }
  masks.asked_ns = now.ns;
  masks.wanted_at = now.next_step;
  unmade_.push_back(std::move(masks.guide));
}

std::unique_ptr<OutputGuide> DrawMasks::Next() {
  if (unmade_.empty()) return nullptr;
  std::unique_ptr<OutputGuide> guide = std::move(unmade_.front());
  unmade_.pop_front();
  return guide;
}

void DrawMasks::Take(SequenceMasks& masks, std::unique_ptr<OutputGuide> guide, int32_t num_known,
                     Now now) {
  masks.guide = std::move(guide);
  if (masks.guide->verdict() != OutputGuide::Verdict::kGood) return;  // the sequence ends
  const bool posted = masks.late.Post(*masks.guide, num_known, now.ns, board_);
  late_ += !posted && masks.wanted_at < now.next_step;
  if (masks.wanted_at == 0 || !masks.awaited) return;  // lost, or none was of late
  const bool in_time = now.ns - masks.asked_ns <= masks.patience_ns;
  if (in_time || ++masks.early_draws == kEarlyDraws) masks.awaited = false;
}

void DrawMasks::Lose(SequenceMasks& masks, int64_t now_ns) const {
  Withhold(masks, now_ns);
  masks.wanted_at = 0;
  if (!masks.awaited) masks.patience_ns = now_ns - masks.asked_ns;
  masks.awaited = true;
  masks.early_draws = 0;
}

}  // namespace quire
