// Passes guides both ways.
#include "engine/mask_exchange.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"

namespace quire {

namespace {

// Steps of many rows under grammars need their masks within a fraction of a millisecond.
int Threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 2, 8);
}

}  // namespace

MaskExchange::MaskExchange(std::function<void()> on_done) : pool_(Threads(), std::move(on_done)) {}

MaskStats MaskExchange::stats(const Scheduler& scheduler) const {
  MaskStats stats = pool_.stats();
  stats.late = scheduler.Load().late_masks;
  return stats;
}

void MaskExchange::OnStepEnd(int64_t step_ns, int64_t now_ns) {
  // The time of a step that waited would let the next one wait longer.
  if (!std::exchange(withheld_, false)) step_ns_ = step_ns;
  ended_ns_ = now_ns;
  step_ended_ = true;
}

int64_t MaskExchange::WithholdLate(int64_t published_ns, int64_t now_ns, Scheduler& scheduler) {
  if (!scheduler.AwaitsMasks()) return kNoDeadline;
  const int64_t began_ns = std::max(published_ns, ended_ns_);
  const int64_t end_ns =
      began_ns + std::clamp(step_ns_ / kLatenessShare, kMinLatenessNs, kMaxLatenessNs);
  if (now_ns < end_ns) return end_ns;
  scheduler.WithholdMasks(now_ns);
  withheld_ = true;
  return kNoDeadline;
}

bool MaskExchange::Run(bool step_runs, const MaskBoard* board, Scheduler& scheduler,
                       SchedulerEvents& events) {
  scheduler.SetMaskBoard(board);
  bool wanted = false;
  while (std::unique_ptr<OutputGuide> guide = scheduler.NextMask()) {
    pool_.Make(std::move(guide));
    wanted = true;
  }
  const bool step_ended = std::exchange(step_ended_, false);
  if (wanted && step_runs && step_ended && board == nullptr) {
    pool_.Await(std::min(step_ns_ / kPatienceShare, kMaxPatienceNs));
  }
  bool any = false;
  while (std::unique_ptr<OutputGuide> guide = pool_.Take()) {
    if (guide->verdict() == OutputGuide::Verdict::kRejected) {
      Log(Severity::kError, "a grammar did not accept a token of its own mask; its request ends",
          {{"request", guide->id()}});
    }
    scheduler.OnMask(std::move(guide), SteadyNowNs(), events);
    any = true;
  }
  return any;
}

}  // namespace quire
