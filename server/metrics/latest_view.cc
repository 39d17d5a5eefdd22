// One view, under a mutex that is held for a moment only.
#include "server/metrics/latest_view.h"

#include <mutex>
#include <utility>

namespace quire {
namespace {

constexpr int64_t kFreshNs = 1'000'000'000;
constexpr int64_t kStaleNs = 10'000'000'000;

}  // namespace

struct LatestView::State {
  std::mutex mutex;
  View view;
  bool asked = false;  // by Get, without an answer yet

  bool Fresh(int64_t now_ns) const { return view != nullptr && now_ns - view->taken_ns < kFreshNs; }

  View Take(const SchedulerView& taken) {
    const std::lock_guard lock(mutex);
    // One view may answer several questions.
    if (view == nullptr || view->taken_ns != taken.taken_ns) {
      view = std::make_shared<const SchedulerView>(taken);
    }
    return view;
  }
};

LatestView::LatestView() : state_(std::make_shared<State>()) {}

LatestView::View LatestView::Get(const Engine& engine, int64_t now_ns) {
  View newest;
  bool ask = false;
  {
    const std::lock_guard lock(state_->mutex);
    newest = state_->view;
    // One question at a time, so that a scheduler that hangs is not asked again and again.
    ask = !state_->Fresh(now_ns) && !std::exchange(state_->asked, true);
  }
  if (ask) {
    engine.View([state = state_](const SchedulerView& view) {
      state->Take(view);
      const std::lock_guard lock(state->mutex);
      state->asked = false;
    });
  }
  return newest == nullptr || now_ns - newest->taken_ns > kStaleNs ? nullptr : newest;
}

void LatestView::Await(const Engine& engine, int64_t now_ns, std::function<void(View)> done) {
  {
    std::unique_lock lock(state_->mutex);
    if (const View newest = state_->view; state_->Fresh(now_ns)) {
      lock.unlock();
      return done(newest);
    }
  }
  // Questions that meet in the engine are answered by one view.
  engine.View([state = state_, done = std::move(done)](const SchedulerView& view) {
    done(state->Take(view));
  });
}

}  // namespace quire
