// Tensors pass in pieces that fit one exchange. Each rank adds up all ranks' pieces by itself, in
// rank order.
#include "kernels/cpu/group_collectives.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace quire::cpu {

void AllReduceSum(const TensorView& x, RankGroup& group) {
  CHECK(x.dtype == DType::kF32 && x.rank >= 1 && x.IsDense());
  constexpr int64_t kPiece = RankGroup::kMaxBytes / sizeof(float);
  for (int64_t begin = 0; begin < x.size(); begin += kPiece) {
    const int64_t count = std::min(kPiece, x.size() - begin);
    float* const sum = x.ptr<float>() + begin;
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    std::memcpy(group.Mine(), sum, bytes);
    const auto given = group.Exchange(bytes);
    std::memcpy(sum, given[0], bytes);
    for (int32_t r = 1; r < group.ranks(); ++r) {
      const auto* const part = reinterpret_cast<const float*>(given[r]);
      for (int64_t i = 0; i < count; ++i) sum[i] += part[i];
    }
  }
}

void ColumnsToRows(const TensorView& x, const TensorView& out, RankGroup& group) {
  const int64_t width = x.dim[1];
  CHECK(x.rank == 2 && out.rank == 2 && x.dtype == out.dtype && x.IsDense());
  CHECK_EQ(out.dim[1], width * group.ranks());
  CHECK_EQ(out.dim[0], MostRows(x.dim[0], group.ranks()));
  const size_t size = SizeOf(x.dtype), row_bytes = static_cast<size_t>(width) * size;
  const auto [first, count] = RowsOf(group.rank(), group.ranks(), x.dim[0]);
  // Elements [begin, end) of a piece pass at once, whole rows or parts of them.
  const auto piece = static_cast<int64_t>(RankGroup::kMaxBytes / size);
  for (int64_t begin = 0; begin < x.size(); begin += piece) {
    const int64_t end = std::min(begin + piece, x.size());
    const size_t bytes = static_cast<size_t>(end - begin) * size;
    std::memcpy(group.Mine(), x.ptr<char>() + static_cast<size_t>(begin) * size, bytes);
    const auto given = group.Exchange(bytes);
    for (int64_t row = std::max(first, begin / width); row < first + count && row * width < end;
         ++row) {
      const int64_t from = std::max(row * width, begin), to = std::min((row + 1) * width, end);
      if (from >= to) continue;
      char* const line =
          out.ptr<char>() + static_cast<size_t>((row - first) * out.row_stride) * size;
      for (int32_t r = 0; r < group.ranks(); ++r) {
        std::memcpy(line + r * row_bytes + static_cast<size_t>(from - row * width) * size,
                    given[r] + static_cast<size_t>(from - begin) * size,
                    static_cast<size_t>(to - from) * size);
      }
    }
  }
}

void ShareSamples(const ShareSamplesParams& p, RankGroup& group) {
  const auto bytes = [](int64_t rows) { return static_cast<size_t>(rows) * sizeof(SampleResult); };
  const RowRange mine = RowsOf(group.rank(), group.ranks(), p.num_rows);
  CHECK_LE(bytes(mine.count), RankGroup::kMaxBytes);
  std::memcpy(group.Mine(), p.results + mine.begin, bytes(mine.count));
  const auto given = group.Exchange(bytes(MostRows(p.num_rows, group.ranks())));
  for (int32_t r = 0; r < group.ranks(); ++r) {
    const RowRange rows = RowsOf(r, group.ranks(), p.num_rows);
    std::memcpy(p.results + rows.begin, given[r], bytes(rows.count));
  }
  for (int32_t row = 0; row < p.num_rows; ++row) {
    if (p.jobs[row].drawn != nullptr) *p.jobs[row].drawn = p.results[row].token;
  }
}

}  // namespace quire::cpu
