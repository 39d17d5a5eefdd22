// LateDraws: the draws of one sequence that are in flight and whose masks come while their steps
// run (mask_board.h), oldest first. Each rests on the draw before it, and its mask is made when
// that is known: so the oldest one without an answer gets the next mask, and if it gets none, those
// behind it get none either. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/masks/output_guide.h"
#include "engine/values/mask_board.h"

namespace quire {

class LateDraws {
 public:
  // In flight at a time: the scheduler plans one behind a draw that is in flight.
  static constexpr int32_t kMost = 2;
  static constexpr int64_t kNoAnswer = std::numeric_limits<int64_t>::max();

  // A draw of step `step`, whose mask comes to entry `index` of the board.
  void Add(uint64_t step, int32_t index);
  // The oldest draw's step has retired. Returns when the draw had its answer, kNoAnswer if it had
  // none.
  int64_t PopOldest();
  // The workers died.
  void Clear() { count_ = answered_ = 0; }

  // At `now_ns`, gives the guide's mask, that of the draw behind `num_known` tokens, to the oldest
  // draw without an answer; false if there is none.
  bool Post(const OutputGuide& guide, int32_t num_known, int64_t now_ns, const MaskBoard& board);
  // From `now_ns` on no draw gets a mask any more.
  void Withhold(int64_t now_ns, const MaskBoard& board);
  // The draw of step `step` has no answer.
  bool Awaits(uint64_t step) const;

 private:
  struct Draw {
    uint64_t step = 0;
    int32_t index = 0;
    int64_t answered_ns = kNoAnswer;
  };
  std::array<Draw, kMost> draws_;
  int32_t count_ = 0;
  int32_t answered_ = 0;  // the oldest ones
};

}  // namespace quire
