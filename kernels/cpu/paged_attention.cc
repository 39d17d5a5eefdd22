// PagedAttention: cuts a query's context into spans at multiples of kSpan positions. Each span is
// an online softmax of its own, and spans are folded in order. So threads may share a long decode,
// and a prompt may be computed in any chunks, without a change of bits.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

constexpr int64_t kSpan = 512;  // keys
// Rows of an item: their sums, 16 KB at head dim 64, stay in the first-level cache.
constexpr int64_t kMaxStates = 64;

// Item: consecutive queries of one sequence, with the query heads of one key/value head.
struct Item {
  int32_t sequence;
  int32_t first_query, queries;
  int32_t kv_head;
  int64_t position;               // of the first query
  int64_t first_span, num_spans;  // with visible keys
};

// Piece: one span of an item, and the place of its states.
struct Piece {
  const Item* item;
  int64_t span;  // of the item's
  float* state;
};

// A thread's lists, kept between calls so that a step allocates nothing.
struct AttentionPlan {
  std::vector<Item> items;
  std::vector<Piece> round;
};

// The values of an 8-bit head's elements, in K and in V.
struct HeadValues {
  std::array<float, 256> k, v;

  HeadValues(const KvLayerView& kv, int32_t head) {
    for (int i = 0; i < 256; ++i) {
      const float element = ToFloat(E4M3{static_cast<uint8_t>(i)});
      k[i] = element * kv.k_scales[head];
      v[i] = element * kv.v_scales[head];
    }
  }
};

class Attention {
 public:
  Attention(const PagedAttentionParams& p, const Cores& cores, AttentionSpace& space,
            AttentionPlan& plan)
      : p_(p),
        cores_(cores),
        space_(space),
        items_(plan.items),
        round_(plan.round),
        dim_(p.kv.head_dim),
        group_(p.num_heads / p.kv.num_kv_heads),
        stride_(AttentionStateStride(dim_)) {
    CHECK(p.q.dtype == DType::kF32 && p.out.dtype == DType::kF32);
    CHECK_EQ(p.num_heads, group_ * p.kv.num_kv_heads);
    CHECK_EQ(p.kv.dtype == DType::kE4M3, p.kv.k_scales != nullptr && p.kv.v_scales != nullptr);
    CHECK(p.q.dim[1] == p.num_heads * dim_ && p.out.dim[1] == p.num_heads * dim_);
  }

  void Run() {
    PlanItems();
    const int64_t items = static_cast<int64_t>(items_.size()), threads = cores_.pool.threads();
    // With too few items for the threads, threads share the spans of an item, if the space holds
    // more spans than there are items.
    const int64_t at_once = std::min(num_spans_, space_.floats / (most_rows_ * stride_) - 1);
    if (threads > 1 && items < 2 * threads && items < at_once) {
      RunSplit();
      return;
    }
    cores_.pool.ParallelFor(items, ItemsPerRange(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) RunWhole(items_[i]);
    });
  }

 private:
  int64_t Rows(const Item& item) const { return int64_t{item.queries} * group_; }

  void PlanItems() {
    items_.clear();
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
          items_.push_back({s, q, queries, h, position, first_span, spans});
          num_spans_ += spans;
        }
        most_rows_ = std::max<int64_t>(most_rows_, int64_t{queries} * group_);
      }
    }
  }

  int64_t ItemsPerRange() const {
    int64_t products = 0;
    for (const Item& item : items_) products += Rows(item) * item.num_spans * kSpan * dim_ * 2;
    const int64_t each = products / std::max<int64_t>(1, static_cast<int64_t>(items_.size()));
    return RowsPerRange(each / 16);
  }

  // Computes the states of an item's rows over one span.
  void ComputeSpan(const Item& item, int64_t span, float* state) const {
    if (p_.kv.dtype != DType::kE4M3) return ComputeSpan(item, span, nullptr, state);
    const HeadValues values(p_.kv, item.kv_head);
    ComputeSpan(item, span, &values, state);
  }

  // `values`: of an 8-bit layer, else null.
  void ComputeSpan(const Item& item, int64_t span, const HeadValues* values, float* state) const {
    thread_local std::vector<float> scratch;
    if (static_cast<int64_t>(scratch.size()) < AttentionScratch(dim_))
      scratch.resize(AttentionScratch(dim_));
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
        .soft_cap = p_.soft_cap,
        .window = p_.window,
        .kv = Elements{static_cast<const char*>(kv.base) + item.kv_head * kv.head_stride * element,
                       kv.dtype},
        .block_stride = kv.block_stride,
        .kv_stride = kv.kv_stride,
        .block_size = kv.block_size,
        .blocks = p_.block_table + p_.table_row[item.sequence] * p_.table_stride,
        .k_values = values == nullptr ? nullptr : values->k.data(),
        .v_values = values == nullptr ? nullptr : values->v.data(),
        .keys_begin = span * kSpan,
        .keys_end = (span + 1) * kSpan,
        .state = state,
        .scratch = scratch.data()};
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

  // Computes spans in order, in rounds of as many as the space holds. The first rows of the space
  // keep the sums of an item that continues in the next round. So spans are folded in the order of
  // RunWhole.
  void RunSplit() {
    float* const kept = space_.data.get();
    float* sums = kept;  // of the item being folded
    size_t item = 0;
    int64_t span = 0;
    while (item < items_.size()) {
      PlanRound(item, span);
      cores_.pool.ParallelFor(
          static_cast<int64_t>(round_.size()), 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const Piece& piece = round_[i];
              ComputeSpan(*piece.item, piece.item->first_span + piece.span, piece.state);
            }
          });
      for (const Piece& piece : round_) {
        if (piece.span == 0) {
          sums = piece.state;
        } else {
          Fold(*piece.item, sums, piece.state);
        }
        if (piece.span == piece.item->num_spans - 1) Finish(*piece.item, sums);
      }
      if (span > 0 && sums != kept) {
        std::memcpy(kept, sums, static_cast<size_t>(Rows(items_[item]) * stride_) * sizeof(float));
        sums = kept;
      }
    }
  }

  // Fills round_ from (item, span) on, and moves both past the round's last span.
  void PlanRound(size_t& item, int64_t& span) {
    round_.clear();
    int64_t used = most_rows_ * stride_;
    while (item < items_.size()) {
      const int64_t floats = Rows(items_[item]) * stride_;
      if (used + floats > space_.floats) break;
      round_.push_back({&items_[item], span, space_.data.get() + used});
      used += floats;
      if (++span == items_[item].num_spans) {
        ++item;
        span = 0;
      }
    }
    CHECK(!round_.empty());
  }

  const PagedAttentionParams& p_;
  const Cores& cores_;
  AttentionSpace& space_;
  std::vector<Item>& items_;
  std::vector<Piece>& round_;
  const int64_t dim_;
  const int32_t group_;
  const int64_t stride_;
  int64_t most_rows_ = 1, num_spans_ = 0;
};

}  // namespace

void PagedAttention(const PagedAttentionParams& p, const Cores& cores, AttentionSpace& space) {
  thread_local AttentionPlan plan;
  Attention(p, cores, space, plan).Run();
}

}  // namespace quire::cpu
