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
  stats.late = scheduler.late_masks();
  return stats;
}

bool MaskExchange::Run(int64_t step_ns, Scheduler& scheduler, SchedulerEvents& events) {
  bool wanted = false;
  while (std::unique_ptr<OutputGuide> guide = scheduler.NextMask()) {
    pool_.Make(std::move(guide));
    wanted = true;
  }
  if (wanted && step_ns > 0) pool_.Await(std::min(step_ns / kPatienceShare, kMaxPatienceNs));
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
