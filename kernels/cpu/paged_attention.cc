// PagedAttention: a query's context is cut into spans at multiples of kSpan positions. Each span is
// an online softmax of its own, and the spans are folded in order; so a long decode may be spread
// over threads, and a prompt computed in any chunks, without a bit changing.
#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

constexpr int64_t kSpan = 512;  // keys
constexpr int64_t kMaxStates =
    64;  // rows of an item: 16 KB of sums at head dim 64 stay in the first-level cache

// Consecutive queries of one sequence and the heads of one key/value head.
struct Item {
  int32_t sequence;
  int32_t first_query, queries;
  int32_t kv_head;
  int64_t position;               // of the first query
  int64_t first_span, num_spans;  // that hold visible keys
  int64_t state;                  // of the first span, in rows of the split buffer
};

class Attention {
 public:
  Attention(const PagedAttentionParams& p, const Cores& cores)
      : p_(p),
        cores_(cores),
        dim_(p.kv.head_dim),
        group_(p.num_heads / p.kv.num_kv_heads),
        stride_(AttentionStateStride(dim_)) {
    CHECK(p.q.dtype == DType::kF32 && p.out.dtype == DType::kF32);
    CHECK_EQ(p.num_heads, group_ * p.kv.num_kv_heads);
    CHECK(p.q.dim[1] == p.num_heads * dim_ && p.out.dim[1] == p.num_heads * dim_);
  }

  void Run() {
    PlanItems();
    // With too few items for the threads, spans are spread instead.
    if (static_cast<int64_t>(items_.size()) < 2 * cores_.pool.threads() &&
        num_spans_ > static_cast<int64_t>(items_.size())) {
      RunSplit();
      return;
    }
    cores_.pool.ParallelFor(static_cast<int64_t>(items_.size()), ItemsPerRange(),
                            [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i) RunWhole(items_[i]);
                            });
  }

 private:
  int64_t Rows(const Item& item) const { return int64_t{item.queries} * group_; }

  void PlanItems() {
    const int32_t at_once = static_cast<int32_t>(std::max<int64_t>(1, kMaxStates / group_));
    for (int32_t s = 0; s < p_.num_seqs; ++s) {
      const int32_t begin = p_.query_begin[s], end = p_.query_begin[s + 1];
      for (int32_t q = begin; q < end; q += at_once) {
        const int32_t queries = std::min(at_once, end - q);
        const int64_t position = p_.context_len[s] - (end - q);
        CHECK_GE(position, 0);
        const int64_t first_key =
            p_.window > 0 ? std::max<int64_t>(0, position - p_.window + 1) : 0;
        const int64_t first_span = first_key / kSpan;
        const int64_t spans = (position + queries - 1) / kSpan - first_span + 1;
        for (int32_t h = 0; h < p_.kv.num_kv_heads; ++h) {
          items_.push_back({s, q, queries, h, position, first_span, spans, num_states_});
          num_states_ += spans * queries * group_;
          num_spans_ += spans;
        }
      }
    }
  }

  int64_t ItemsPerRange() const {
    int64_t products = 0;
    for (const Item& item : items_) products += Rows(item) * item.num_spans * kSpan * dim_ * 2;
    const int64_t each = products / std::max<int64_t>(1, static_cast<int64_t>(items_.size()));
    return RowsPerRange(each / 16);
  }

  // States of `rows` rows of one span.
  void ComputeSpan(const Item& item, int64_t span, float* state) const {
    thread_local std::vector<float> room;
    if (static_cast<int64_t>(room.size()) < AttentionRoom(dim_)) room.resize(AttentionRoom(dim_));
    const KvLayerView& kv = p_.kv;
    const int64_t element = static_cast<int64_t>(SizeOf(kv.dtype));
    const AttentionBlock block{
        .q = p_.q.row<float>(item.first_query) + int64_t{item.kv_head} * group_ * dim_,
        .q_stride = p_.q.row_stride,
        .tokens = item.queries,
        .group = group_,
        .head_dim = static_cast<int32_t>(dim_),
        .position = item.position,
        .scale = p_.scale,
        .window = p_.window,
        .kv = Elements{static_cast<const char*>(kv.base) + item.kv_head * kv.head_stride * element,
                       kv.dtype},
        .block_stride = kv.block_stride,
        .kv_stride = kv.kv_stride,
        .block_size = kv.block_size,
        .blocks = p_.block_table + p_.table_row[item.sequence] * p_.table_stride,
        .keys_begin = span * kSpan,
        .keys_end = (span + 1) * kSpan,
        .state = state,
        .room = room.data()};
    cores_.kernels.attend(block);
  }

  void Fold(const Item& item, float* states, const float* later) const {
    for (int64_t r = 0; r < Rows(item); ++r) {
      cores_.kernels.fold(states + r * stride_, later + r * stride_, dim_);
    }
  }

  void Finish(const Item& item, const float* states) const {
    for (int64_t r = 0; r < Rows(item); ++r) {
      float* out = p_.out.row<float>(item.first_query + r / group_) +
                   (int64_t{item.kv_head} * group_ + r % group_) * dim_;
      cores_.kernels.finish(states + r * stride_, out, dim_);
    }
  }

  void RunWhole(const Item& item) const {
    thread_local std::vector<float> states;
    const int64_t floats = Rows(item) * stride_;
    if (static_cast<int64_t>(states.size()) < 2 * floats) states.resize(2 * floats);
    ComputeSpan(item, item.first_span, states.data());
    for (int64_t i = 1; i < item.num_spans; ++i) {
      ComputeSpan(item, item.first_span + i, states.data() + floats);
      Fold(item, states.data(), states.data() + floats);
    }
    Finish(item, states.data());
  }

  void RunSplit() {
    std::vector<float> states(num_states_ * stride_);
    std::vector<std::pair<int32_t, int64_t>> spans;  // item, span of the item
    for (size_t i = 0; i < items_.size(); ++i) {
      for (int64_t s = 0; s < items_[i].num_spans; ++s) spans.emplace_back(i, s);
    }
    const auto state_of = [&](const Item& item, int64_t span) {
      return states.data() + (item.state + span * Rows(item)) * stride_;
    };
    cores_.pool.ParallelFor(static_cast<int64_t>(spans.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Item& item = items_[spans[i].first];
        const int64_t span = spans[i].second;
        ComputeSpan(item, item.first_span + span, state_of(item, span));
      }
    });
    for (const Item& item : items_) {
      for (int64_t i = 1; i < item.num_spans; ++i) Fold(item, state_of(item, 0), state_of(item, i));
      Finish(item, state_of(item, 0));
    }
  }

  const PagedAttentionParams& p_;
  const Cores& cores_;
  const int64_t dim_;
  const int32_t group_;
  const int64_t stride_;
  std::vector<Item> items_;
  int64_t num_states_ = 0, num_spans_ = 0;
};

}  // namespace

void PagedAttention(const PagedAttentionParams& p, const Cores& cores) {
  Attention(p, cores).Run();
}

}  // namespace quire::cpu
