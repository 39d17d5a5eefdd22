// CollectiveGroup: every rank reduces its own slice of the elements for all ranks and reads and
// writes the other ranks' memory directly. Slices are disjoint, so two barriers suffice.
#include "kernels/cpu/collective.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu/spin_wait.h"

namespace quire::cpu {

CollectiveGroup::CollectiveGroup(int ranks, bool may_spin)
    : ranks_(ranks), may_spin_(may_spin), views_(ranks) {
  CHECK_GE(ranks, 1);
}

void CollectiveGroup::Barrier() {
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(ranks_)) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    round_.notify_all();
    return;
  }
  SpinThenWait(round_, round, may_spin_);
}

void CollectiveGroup::AllReduceSum(int rank, const TensorView& x) {
  if (ranks_ == 1) return;
  CHECK(x.dtype == DType::kF32 && x.rank >= 1);
  views_[rank] = x;
  Barrier();
  const int64_t columns = x.dim[0] == 0 ? 0 : x.size() / x.dim[0];
  const int64_t begin = columns * rank / ranks_;
  const int64_t end = columns * (rank + 1) / ranks_;
  for (int64_t t = 0; t < x.dim[0]; ++t) {
    for (int64_t i = begin; i < end; ++i) {
      float sum = views_[0].row<float>(t)[i];
      for (int r = 1; r < ranks_; ++r) sum += views_[r].row<float>(t)[i];
      for (int r = 0; r < ranks_; ++r) views_[r].row<float>(t)[i] = sum;
    }
  }
  Barrier();
}

void CollectiveGroup::AllGather(int rank, const TensorView& x, const TensorView& out) {
  CHECK(x.rank == 2 && out.rank == 2 && x.dtype == out.dtype);
  CHECK(out.dim[0] == x.dim[0] && out.dim[1] == x.dim[1] * ranks_);
  views_[rank] = x;
  Barrier();
  const size_t size = SizeOf(x.dtype);
  const size_t bytes = static_cast<size_t>(x.dim[1]) * size;
  for (int64_t t = 0; t < x.dim[0]; ++t) {
    char* to = out.ptr<char>() + static_cast<size_t>(t * out.row_stride) * size;
    for (int r = 0; r < ranks_; ++r) {
      const TensorView& from = views_[r];
      std::memcpy(to + r * bytes,
                  from.ptr<char>() + static_cast<size_t>(t * from.row_stride) * size, bytes);
    }
  }
  Barrier();
}

}  // namespace quire::cpu
