// A short queue.
#include "engine/masks/late_draws.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

void LateDraws::Add(uint64_t step, int32_t index) {
  CHECK_LT(count_, kMost);
  draws_[static_cast<size_t>(count_++)] = {step, index};
}

void LateDraws::PopOldest() {
  CHECK_GT(count_, 0);
  std::copy(draws_.begin() + 1, draws_.begin() + count_, draws_.begin());
  --count_;
  answered_ = std::max(0, answered_ - 1);
}

bool LateDraws::Post(const OutputGuide& guide, int32_t num_known, const MaskBoard& board) {
  if (answered_ == count_) return false;
  const Draw& draw = draws_[static_cast<size_t>(answered_++)];
  board.Post(draw.step, draw.index, num_known, guide.mask());
  return true;
}

void LateDraws::Withhold(const MaskBoard& board) {
  for (; answered_ < count_; ++answered_) {
    const Draw& draw = draws_[static_cast<size_t>(answered_)];
    board.Withhold(draw.step, draw.index);
  }
}

bool LateDraws::Awaits(uint64_t step) const {
  return answered_ < count_ && draws_[static_cast<size_t>(answered_)].step == step;
}

}  // namespace quire
