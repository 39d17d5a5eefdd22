// Passes guides both ways.
#include "engine/mask_exchange.h"

#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"

namespace quire {

MaskExchange::MaskExchange(std::function<void()> on_done) : pool_(kThreads, std::move(on_done)) {}

MaskStats MaskExchange::stats(const Scheduler& scheduler) const {
  MaskStats stats = pool_.stats();
  stats.late = scheduler.late_masks();
  return stats;
}

bool MaskExchange::Run(bool busy, Scheduler& scheduler, SchedulerEvents& events) {
  bool wanted = false;
  while (std::unique_ptr<OutputGuide> guide = scheduler.NextMask()) {
    pool_.Make(std::move(guide));
    wanted = true;
  }
  if (wanted && busy) pool_.Await(kPatienceNs);
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
