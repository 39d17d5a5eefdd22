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
  int64_t sequences, ranges, arrivals, tiles, counts, states, end;  // offsets in bytes
  int64_t state_stride;
};

int64_t MaxPrefillTiles(int64_t tokens, int64_t rows, int64_t group) {
  return tokens * group / kPrefillRows + rows;
}

SpaceLayout LayOut(const AttentionLimits& limits, int num_sms) {
  const int64_t ctas = kDecodeCtasPerSm * num_sms;
  const int64_t group = limits.num_heads / limits.num_kv_heads;
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t offset = at;
    at = RoundUp<int64_t>(at + bytes, 256);
    return offset;
  };
  SpaceLayout layout;
  layout.sequences = take(limits.max_rows * static_cast<int64_t>(sizeof(DecodeSequence)));
  layout.ranges = take(ctas * static_cast<int64_t>(sizeof(DecodeRange)));
  layout.arrivals = take(ctas * 4);
  layout.tiles = take(MaxPrefillTiles(limits.max_tokens, limits.max_rows, group) *
                      static_cast<int64_t>(sizeof(PrefillTile)));
  layout.counts = take(8);
  // A range begins in at most one shared head, where it may have all chunks but the first, and ends
  // in at most one that it owns. A state has 8 rows, or 16 in chunks of twice the size.
  const int64_t chunks =
      std::min<int64_t>(kMaxChunks, CeilDiv<int64_t>(limits.max_context, 64) + 1);
  layout.state_stride = (chunks + 2) * 8 * StateRowFloats(limits.head_dim);
  layout.states = take(ctas * layout.state_stride * 4);
  layout.end = at;
  return layout;
}

AttentionSpace SpaceAt(const AttentionLimits& limits, int num_sms, void* space) {
  const SpaceLayout layout = LayOut(limits, num_sms);
  char* base = static_cast<char*>(space);
  AttentionSpace s;
  s.sequences = reinterpret_cast<DecodeSequence*>(base + layout.sequences);
  s.ranges = reinterpret_cast<DecodeRange*>(base + layout.ranges);
  s.arrivals = reinterpret_cast<uint32_t*>(base + layout.arrivals);
  s.tiles = reinterpret_cast<PrefillTile*>(base + layout.tiles);
  s.num_tiles = reinterpret_cast<int32_t*>(base + layout.counts);
  s.tickets = reinterpret_cast<uint32_t*>(base + layout.counts + 4);
  s.states = reinterpret_cast<float*>(base + layout.states);
  s.state_stride = layout.state_stride;
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
  CHECK(p.q.dtype == kv.dtype && p.out.dtype == kv.dtype);
  CHECK(p.q.dim[1] == width && p.out.dim[1] == width && p.out.dim[0] == p.q.dim[0]);
  CHECK(kv.block_size == 16 || kv.block_size == 32 || kv.block_size == 64);
  // 16-byte copies need this alignment.
  CHECK_EQ(p.q.row_stride % 8, 0);
  CHECK_EQ(p.out.row_stride % 8, 0);
  CHECK_EQ((kv.block_stride | kv.kv_stride | kv.head_stride) % 8, 0);
  CHECK_EQ((reinterpret_cast<uintptr_t>(p.q.data) | reinterpret_cast<uintptr_t>(p.out.data) |
            reinterpret_cast<uintptr_t>(kv.base)) %
               16,
           0u);
  CHECK(p.scale > 0.0f && p.max_query_len > 0);
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
          .scale_log2 = p.scale * kLog2E,
          .block_table = p.block_table,
          .table_stride = p.table_stride,
          .space = space};
}

}  // namespace

int64_t PagedAttention::SpaceBytes(const AttentionLimits& limits, int num_sms) {
  return LayOut(limits, num_sms).end;
}

PagedAttention::PagedAttention(const AttentionLimits& limits, const Device& device, void* space)
    : limits_(limits), device_(device), space_(space) {
  CHECK(limits.head_dim == 64 || limits.head_dim == 128);
  static_assert(kCudaLimits.max_group == kDecodeRows);
  CHECK_EQ(limits.num_heads % limits.num_kv_heads, 0);
  CHECK_LE(limits.num_heads / limits.num_kv_heads, kDecodeRows);
  CHECK_LE(kDecodeCtasPerSm * device.num_sms, kMaxRanges);
  CHECK_LE(limits.max_rows, kCudaLimits.max_rows);
}

void PagedAttention::Plan(const PagedAttentionParams& p) {
  CheckShapes(p, limits_);
  planned_window_ = p.window;
  ran_ = false;
  const PlanArgs args{
      .query_begin = p.query_begin,
      .context_len = p.context_len,
      .table_row = p.table_row,
      .num_seqs = p.num_seqs,
      .group = p.num_heads / p.kv.num_kv_heads,
      .num_kv_heads = p.kv.num_kv_heads,
      .window = p.window,
      .num_sms = device_.num_sms,
      .num_ctas = kDecodeCtasPerSm * device_.num_sms,
      .max_rows = limits_.max_rows,
      .space = SpaceAt(limits_, device_.num_sms, space_),
  };
  LaunchPlan(args, device_);
}

void PagedAttention::Run(const PagedAttentionParams& p) {
  CheckShapes(p, limits_);
  CHECK_EQ(p.window, planned_window_);  // chunks begin where the window does
  AttentionArgs args = MakeArgs(p, SpaceAt(limits_, device_.num_sms, space_));
  args.settled = ran_;
  ran_ = true;
  const bool all_decode = Decodes(p.max_query_len, args.group);
  const bool all_prefill = p.num_seqs == 1 && !all_decode;
  if (!all_prefill) LaunchDecode(p, args, device_);
  if (all_decode) return;
  const int64_t max_tiles = MaxPrefillTiles(p.q.dim[0], p.num_seqs, args.group);
  LaunchPrefill(p, args, max_tiles, device_);
}

}  // namespace quire::cuda
