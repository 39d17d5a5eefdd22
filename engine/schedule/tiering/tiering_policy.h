// TieringPolicy: when copies between device and host are worth their time. It compares the measured
// speeds of copies and prefill, and watches how many blocks could be evicted without a loss. Knows
// no nodes and starts no copies: Tiering asks and acts. One thread.
#pragma once

#include <cstdint>

#include "engine/schedule/tiering/measured_rate.h"
#include "engine/values/copy_plan.h"
#include "engine/values/scheduler_config.h"

namespace quire {

class TieringPolicy {
 public:
  explicit TieringPolicy(const TieringConfig& config) : config_(config) {}

  // --- Measurements: prefill computed `tokens`, or a job copied `bytes`, within `ns`. Ignores
  // values of 0.
  void OnPrefill(int32_t tokens, int64_t ns);
  void OnCopied(CopyDirection direction, int64_t bytes, int64_t ns, int64_t now_ns);
  // 0: not measured yet.
  double BytesPerSecond(CopyDirection direction, int64_t now_ns) const;
  double PrefillTokensPerSecond() const { return prefill_.PerSecond(0); }

  // --- A copy is a bargain: it is made if it is expected to be fast enough beside computing the
  // same KV again, and given up when it takes longer.
  // Whether copying `blocks` is expected to be fast enough, beside computing `tokens`. True while
  // one of the two has not been measured.
  bool IsWorthCopying(CopyDirection direction, int32_t blocks, int32_t tokens,
                      int64_t now_ns) const;
  // How long a copy of KV that takes `tokens` to compute may be waited for; kNoDeadline while
  // prefill has not been measured.
  int64_t PatienceNs(int32_t tokens) const;
  // The same as a decision that counts: now and then a restore that is not worth it is accepted, to
  // measure the speed again.
  bool AcceptRestore(int32_t blocks, int32_t tokens, int64_t now_ns);

  // --- Pressure.
  // Begins when fewer than the low watermark of all blocks can be had without losing KV, ends when
  // the high watermark is reached.
  void UpdatePressure(int32_t lossless_blocks, int32_t total_blocks);
  bool pressed() const { return pressed_; }

 private:
  const TieringConfig config_;
  MeasuredRate prefill_, store_rate_, load_rate_;
  int32_t declined_ = 0;  // restores in a row
  bool pressed_ = false;
};

}  // namespace quire
