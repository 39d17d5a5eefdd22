// A short queue.
#include "engine/masks/late_draws.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {

void LateDraws::Add(uint64_t step, int32_t index) {
  CHECK_LT(count_, kMost);
  draws_[static_cast<size_t>(count_++)] = {.step = step, .index = index};
}

int64_t LateDraws::PopOldest() {
  CHECK_GT(count_, 0);
  const int64_t answered_ns = draws_[0].answered_ns;
  std::copy(draws_.begin() + 1, draws_.begin() + count_, draws_.begin());
  --count_;
  answered_ = std::max(0, answered_ - 1);
  return answered_ns;
}

bool LateDraws::Post(const OutputGuide& guide, int32_t num_known, int64_t now_ns,
                     const MaskBoard& board) {
  if (answered_ == count_) return false;
  Draw& draw = draws_[static_cast<size_t>(answered_++)];
  draw.answered_ns = now_ns;
  board.Post(draw.step, draw.index, num_known, guide.mask());
  return true;
}

void LateDraws::Withhold(int64_t now_ns, const MaskBoard& board) {
  for (; answered_ < count_; ++answered_) {
    Draw& draw = draws_[static_cast<size_t>(answered_)];
    draw.answered_ns = now_ns;
    board.Withhold(draw.step, draw.index);
  }
}

bool LateDraws::Awaits(uint64_t step) const {
  return answered_ < count_ && draws_[static_cast<size_t>(answered_)].step == step;
}

}  // namespace quire
