// Comparisons of measured speeds.
#include "engine/schedule/tiering/tiering_policy.h"

namespace quire {
namespace {

// Accept a copy up to 1.2 x slower than computing: it leaves the GPU to others.
constexpr double kSlowest = 1.2;
// Wait for it twice as long as computing takes: then both together cost three times as much. The
// least patience is for KV that is computed within less than a few steps.
constexpr double kPatience = 2;
constexpr int64_t kLeastPatienceNs = 50'000'000;
// Accept every 16th restore in a row that looks too slow: without a try its speed is never measured
// again.
constexpr int32_t kProbeEvery = 16;

}  // namespace

void TieringPolicy::OnPrefill(int32_t tokens, int64_t ns) {
  if (tokens > 0 && ns > 0) prefill_.Add(tokens, ns, 0);
}

void TieringPolicy::OnCopied(CopyDirection direction, int64_t bytes, int64_t ns, int64_t now_ns) {
  if (bytes <= 0 || ns <= 0) return;
  MeasuredRate& rate = direction == CopyDirection::kLoad ? load_rate_ : store_rate_;
  rate.Add(static_cast<double>(bytes), ns, now_ns);
}

double TieringPolicy::BytesPerSecond(CopyDirection direction, int64_t now_ns) const {
  return (direction == CopyDirection::kLoad ? load_rate_ : store_rate_).PerSecond(now_ns);
}

bool TieringPolicy::IsWorthCopying(CopyDirection direction, int32_t blocks, int32_t tokens,
                                   int64_t now_ns) const {
  const double bytes_per_second = BytesPerSecond(direction, now_ns);
  const double tokens_per_second = prefill_.PerSecond(0);
  if (bytes_per_second == 0 || tokens_per_second == 0) return true;
  const double copy = static_cast<double>(config_.block_bytes) * blocks / bytes_per_second;
  return copy <= kSlowest * tokens / tokens_per_second;
}

int64_t TieringPolicy::PatienceNs(int32_t tokens) const {
  const double tokens_per_second = prefill_.PerSecond(0);
  if (tokens_per_second == 0) return kNoDeadline;
  return kLeastPatienceNs + static_cast<int64_t>(kPatience * 1e9 * tokens / tokens_per_second);
}

bool TieringPolicy::AcceptRestore(int32_t blocks, int32_t tokens, int64_t now_ns) {
  if (!IsWorthCopying(CopyDirection::kLoad, blocks, tokens, now_ns)) {
    return ++declined_ % kProbeEvery == 0;
  }
  declined_ = 0;
  return true;
}

void TieringPolicy::UpdatePressure(int32_t lossless_blocks, int32_t total_blocks) {
  const double watermark = pressed_ ? config_.high_watermark : config_.low_watermark;
  pressed_ = lossless_blocks < watermark * total_blocks;
}

}  // namespace quire
