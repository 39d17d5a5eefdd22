// LatestView: the newest view of the scheduler, for all who look. Asks the engine at most once a
// second, and only while a reader asks. Any thread; never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/engine.h"

namespace quire {

class LatestView {
 public:
  using View = std::shared_ptr<const SchedulerView>;

  LatestView();

  // The newest view, null if there is none of the last ten seconds. Asks for the next one unless
  // the newest is less than a second old.
  View Get(const Engine& engine, int64_t now_ns);
  // Gives `done` a view that is at most a second old, at once or on the scheduler thread: `done`
  // must hand it over and not block. It is dropped without a call if the engine ends first.
  void Await(const Engine& engine, int64_t now_ns, std::function<void(View)> done);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with the question to the engine
};

}  // namespace quire
