// The collectives of kernels/collectives.h between CPU ranks, over a RankGroup.
#pragma once

#include "kernels/collectives.h"
#include "kernels/cpu/rank_group.h"

namespace quire::cpu {

// x is f32.
void AllReduceSum(const TensorView& x, RankGroup& group);
void ColumnsToRows(const TensorView& x, const TensorView& out, RankGroup& group);
// The results of a rank's rows fit RankGroup::kMaxBytes.
void ShareSamples(const ShareSamplesParams& p, RankGroup& group);

}  // namespace quire::cpu
