// The step thread and the thread that collects.
#include "engine/worker/program/rank_loop.h"

#include <optional>
#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/wake_event.h"
#include "engine/worker/copy/copy_engine.h"

namespace quire {
namespace {

constexpr uint64_t kEnded = uint64_t{1} << 63;

}  // namespace

RankLoop::RankLoop(const StepMemory& memory, std::atomic<uint32_t>& bell, StepPipeline& pipeline,
                   const Place& place)
    : memory_(memory),
      bell_(bell),
      pipeline_(pipeline),
      place_(place),
      heartbeat_(memory.heartbeat(place.rank)) {}

absl::Status RankLoop::Run() {
  std::optional<CopyEngine> copies;
  if (CopyRunner* const runner = pipeline_.copies()) {
    copies.emplace(*runner, memory_.copies(place_.rank), [this] { WakeEvent::Notify(bell_); });
  }
  std::thread collector([this] { CollectAll(); });
  const absl::Status status = LaunchAll();
  launched_.fetch_or(kEnded, std::memory_order_release);
  launched_.notify_one();
  collector.join();
  return status;
}

absl::Status RankLoop::LaunchAll() {
  const SharedRing plans = memory_.plans();
  const int32_t depth = memory_.shape().depth;
  StepPlan plan;
  for (uint64_t step = 0;; ++step) {
    while (plans.published() == step) plans.AwaitChange(step, place_.spin_ns);
    if (!DecodePlan(plans.slot(step), plan)) {
      return absl::InternalError("plan " + std::to_string(step + 1) + " cannot be read");
    }
    if (plan.shutdown) return absl::OkStatus();
    // The server has read the result that frees the slot, so this thread sees that it was
    // collected.
    if (step - collected_.load(std::memory_order_acquire) >= static_cast<uint64_t>(depth)) {
      return absl::InternalError("plan " + std::to_string(step + 1) + " came too early");
    }
    pipeline_.Launch(plan);
    heartbeat_.launched.store(step + 1, std::memory_order_relaxed);
    Beat();
    launched_.store(step + 1, std::memory_order_release);
    launched_.notify_one();
  }
}

void RankLoop::CollectAll() {
  SharedRing results = memory_.results(place_.rank);
  StepResult result;
  for (uint64_t step = 0;; ++step) {
    uint64_t launched = launched_.load(std::memory_order_acquire);
    while ((launched & ~kEnded) == step) {
      if ((launched & kEnded) != 0) return;
      launched_.wait(launched, std::memory_order_acquire);
      launched = launched_.load(std::memory_order_acquire);
    }
    pipeline_.Collect(result);
    collected_.store(step + 1, std::memory_order_release);
    EncodeResult(result, results.slot(step));
    results.Publish();
    WakeEvent::Notify(bell_);
    heartbeat_.finished.store(step + 1, std::memory_order_relaxed);
    Beat();
  }
}

void RankLoop::Beat() { heartbeat_.at_ns.store(SteadyNowNs(), std::memory_order_relaxed); }

}  // namespace quire
