// PagedAttention: lays out its device memory, checks shapes, and launches the step's plan and the
// kernels of each layer.
#include "kernels/cuda/attention/paged_attention.h"

#include <algorithm>
#include <array>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/device_limits.h"

namespace quire::cuda {
namespace {

struct SpaceLayout {
  int64_t sequences, ranges, tiles, num_tiles, plan_end;  // offsets in a plan, in bytes
  int64_t arrivals, tickets, meeting, states, end;        // offsets in bytes behind all plans
  int64_t state_stride;                                   // of a range, in floats
  int64_t own_state_rows, span_state_rows;                // of the prefill kernel
};

// Tiles of a step whose tiles take all their spans.
int64_t MaxPrefillTiles(int64_t tokens, int64_t rows, int64_t group) {
  return tokens * group / kPrefillRows + rows;
}

// The prefill kernel's part of the states' memory: a CTA's own states, and the rest for
// those of spans, at least for any one sequence's.
void DivideStates(const AttentionLimits& limits, int num_sms, int64_t decode_rows,
                  SpaceLayout* layout) {
  layout->own_state_rows = layout->span_state_rows = 0;
  if (limits.max_context < kLeastCutTokens) return;
  layout->own_state_rows = int64_t{num_sms} * kOwnStateCount * kPrefillRows;
  layout->span_state_rows =
      std::max<int64_t>(int64_t{kMostItems} * kPrefillRows, decode_rows - layout->own_state_rows);
}

SpaceLayout LayOut(const AttentionLimits& limits, int num_sms) {
  const int64_t ctas = DecodeCtasPerSm(limits.head_dim) * num_sms;
  const int64_t group = limits.num_heads / limits.num_kv_heads;
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t offset = at;
    at = RoundUp<int64_t>(at + bytes, 256);
    return offset;
  };
  SpaceLayout layout{};
  // A range begins in at most one shared head, where it may have all chunks but the first, and ends
  // in at most one that it owns. A state has 8 rows, or 16 in chunks of twice the size.
  const int64_t chunks =
      std::min<int64_t>(kMaxChunks, CeilDiv<int64_t>(limits.max_context, 64) + 1);
  const int64_t row = StateRowFloats(CompiledHeadDim(limits.head_dim, limits.capped));
  layout.state_stride = (chunks + 2) * 8 * row;
  DivideStates(limits, num_sms, ctas * (chunks + 2) * 8, &layout);
  // A tile of a span has states of more than 16 rows for each head.
  const int64_t span_tiles = layout.span_state_rows / (16 * limits.num_kv_heads);
  layout.sequences = take(limits.max_rows * static_cast<int64_t>(sizeof(DecodeSequence)));
  layout.ranges = take(ctas * static_cast<int64_t>(sizeof(DecodeRange)));
  layout.tiles = take((MaxPrefillTiles(limits.max_tokens, limits.max_rows, group) + span_tiles) *
                      static_cast<int64_t>(sizeof(PrefillTile)));
  layout.num_tiles = take(8);
  layout.plan_end = at;
  at *= PagedAttention::kMaxPlans;
  layout.arrivals = take(ctas * 4);
  layout.tickets = take(4);
  layout.meeting = take(8);
  // The kernels of a layer have their states in the same memory, one after the other.
  layout.states = take(
      std::max(ctas * layout.state_stride, (layout.own_state_rows + layout.span_state_rows) * row) *
      4);
  layout.end = at;
  return layout;
}

// The space with the arrays of one plan.
AttentionSpace SpaceAt(const AttentionLimits& limits, int num_sms, void* space, int64_t plan) {
  const SpaceLayout layout = LayOut(limits, num_sms);
  char* base = static_cast<char*>(space);
  char* of_plan = base + plan * layout.plan_end;
  AttentionSpace s;
  s.sequences = reinterpret_cast<DecodeSequence*>(of_plan + layout.sequences);
  s.ranges = reinterpret_cast<DecodeRange*>(of_plan + layout.ranges);
  s.tiles = reinterpret_cast<PrefillTile*>(of_plan + layout.tiles);
  s.num_tiles = reinterpret_cast<int32_t*>(of_plan + layout.num_tiles);
  s.arrivals = reinterpret_cast<uint32_t*>(base + layout.arrivals);
  s.tickets = reinterpret_cast<uint32_t*>(base + layout.tickets);
  s.states = reinterpret_cast<float*>(base + layout.states);
  s.state_stride = layout.state_stride;
  s.own_states = s.states;
  s.span_states = s.states + layout.own_state_rows *
                                 StateRowFloats(CompiledHeadDim(limits.head_dim, limits.capped));
  s.meeting = reinterpret_cast<uint32_t*>(base + layout.meeting);
  s.span_state_rows = static_cast<int32_t>(layout.span_state_rows);
  return s;
}

void CheckShapes(const PagedAttentionParams& p, const AttentionLimits& limits) {
  const KvLayerView& kv = p.kv;
  const int64_t width = int64_t{p.num_heads} * kv.head_dim;
  CHECK_EQ(p.num_heads, limits.num_heads);
  CHECK_EQ(kv.num_kv_heads, limits.num_kv_heads);
  CHECK_EQ(kv.head_dim, limits.head_dim);
  CHECK_LE(p.num_seqs, limits.max_rows);
  CHECK_LE(p.q.dim[0], limits.max_tokens);
  const bool eight_bit = kv.dtype == DType::kE4M3;
  CHECK(p.out.dtype == p.q.dtype && (eight_bit || kv.dtype == p.q.dtype));
  CHECK_EQ(eight_bit, kv.k_scales != nullptr && kv.v_scales != nullptr);
  CHECK(p.q.dim[1] == width && p.out.dim[1] == width && p.out.dim[0] == p.q.dim[0]);
  CHECK(kv.block_size == 16 || kv.block_size == 32 || kv.block_size == 64);
  // 16-byte copies need this alignment.
  CHECK_EQ(p.q.row_stride % 8, 0);
  CHECK_EQ(p.out.row_stride % 8, 0);
  const int64_t elements = 16 / static_cast<int64_t>(SizeOf(kv.dtype));
  CHECK_EQ((kv.block_stride | kv.kv_stride | kv.head_stride | kv.head_dim) % elements, 0);
  CHECK_EQ((reinterpret_cast<uintptr_t>(p.q.data) | reinterpret_cast<uintptr_t>(p.out.data) |
            reinterpret_cast<uintptr_t>(kv.base)) %
               16,
           0u);
  CHECK(p.scale > 0.0f && p.max_query_len > 0);
  CHECK(p.soft_cap == 0.0f || (limits.capped && p.soft_cap > 0.0f));
}

AttentionArgs MakeArgs(const PagedAttentionParams& p, const AttentionSpace& space) {
  const KvLayerView& kv = p.kv;
  constexpr float kLog2E = 1.4426950408889634f;
  const int32_t group = p.num_heads / kv.num_kv_heads;
  return {.q = p.q.data,
          .q_stride = p.q.row_stride,
          .out = p.out.data,
          .out_stride = p.out.row_stride,
          .kv = kv.base,
          .block_stride = kv.block_stride,
          .kv_stride = kv.kv_stride,
          .head_stride = kv.head_stride,
          .block_shift = kv.block_size == 16   ? 4
                         : kv.block_size == 32 ? 5
                                               : 6,
          .num_kv_heads = kv.num_kv_heads,
          .group = group,
          .group_inverse = CeilDiv(uint32_t{1} << 31, static_cast<uint32_t>(group)),
          .window = p.window,
          .head_dim = kv.head_dim,
          .scale_log2 = p.soft_cap > 0 ? 1.0f : p.scale * kLog2E,
          .cap_factor = p.soft_cap > 0 ? 2 * p.scale / p.soft_cap * kLog2E : 0.0f,
          .cap_log2 = p.soft_cap * kLog2E,
          .block_table = p.block_table,
          .table_stride = p.table_stride,
          .space = space,
          .settled = false,
          .k_scales = kv.k_scales,
          .v_scales = kv.v_scales};
}

}  // namespace

int64_t PagedAttention::SpaceBytes(const AttentionLimits& limits, int num_sms) {
  return LayOut(limits, num_sms).end;
}

PagedAttention::PagedAttention(const AttentionLimits& limits, const Device& device, void* space)
    : limits_(limits), device_(device), space_(space) {
  static_assert(kCudaLimits.head_multiple % 8 == 0 && kCudaLimits.max_head_dim == kMaxHeadDim);
  CHECK(limits.head_dim % 8 == 0 && limits.head_dim <= kMaxHeadDim);  // copies of 16 bytes
  CHECK_EQ(limits.num_heads % limits.num_kv_heads, 0);
  CHECK_LE(DecodeCtasPerSm(limits.head_dim) * device.num_sms, kMaxRanges);
  CHECK_LE(limits.max_rows, kCudaLimits.max_rows);
  const int64_t group = limits.num_heads / limits.num_kv_heads;
  CHECK_LE(group * group * limits.max_tokens, kCudaLimits.max_group_rows);
}

int PagedAttention::PlanOf(int32_t window) const {
  const auto end = windows_.begin() + num_plans_;
  return static_cast<int>(std::find(windows_.begin(), end, window) - windows_.begin());
}

void PagedAttention::Plan(const PagedAttentionParams& p) {
  CheckShapes(p, limits_);
  if (ran_) num_plans_ = 0;  // a new step
  ran_ = false;
  const int plan = PlanOf(p.window);
  if (plan == num_plans_) {
    CHECK_LT(num_plans_, kMaxPlans);
    windows_[num_plans_++] = p.window;
  }
  const PlanArgs args{
      .query_begin = p.query_begin,
      .context_len = p.context_len,
      .table_row = p.table_row,
      .num_seqs = p.num_seqs,
      .group = p.num_heads / p.kv.num_kv_heads,
      .num_kv_heads = p.kv.num_kv_heads,
      .window = p.window,
      .bytes = {.wide = p.kv.head_dim > 128, .eight_bit = p.kv.dtype == DType::kE4M3},
      .num_sms = device_.num_sms,
      .num_ctas = DecodeCtasPerSm(limits_.head_dim) * device_.num_sms,
      .max_rows = limits_.max_rows,
      .space = SpaceAt(limits_, device_.num_sms, space_, plan),
  };
  LaunchPlan(args, device_);
}

void PagedAttention::Run(const PagedAttentionParams& p) {
  CheckShapes(p, limits_);
  const int plan = PlanOf(p.window);
  CHECK_LT(plan, num_plans_);  // chunks begin where the window does
  AttentionArgs args = MakeArgs(p, SpaceAt(limits_, device_.num_sms, space_, plan));
  args.settled = ran_;
  ran_ = true;
  const bool all_decode = Decodes(p.max_query_len, args.group);
  const bool all_prefill = !Decodes(1, args.group) || (p.num_seqs == 1 && !all_decode);
  if (!all_prefill) LaunchDecode(p, args, device_);
  if (all_decode) return;
  const int64_t most_context = p.table_stride * p.kv.block_size;
  const int64_t most_spans =
      std::clamp<int64_t>(most_context / (kLeastTurns * kSpanTurn), 1, kMaxSpans);
  const int64_t max_tiles = MaxPrefillTiles(p.q.dim[0], p.num_seqs, args.group) * most_spans;
  LaunchPrefill(p, args, max_tiles, device_);
}

}  // namespace quire::cuda
