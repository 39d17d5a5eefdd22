// ViewTaker: reads the state of the scheduler for people who look at it, in parts between steps.
// One thread.
#pragma once

#include <optional>

#include "engine/schedule/kv/kv_map_builder.h"
#include "engine/values/scheduler_view.h"

namespace quire {

class LiveSequences;

class ViewTaker {
 public:
  // Nodes of the prefix tree in one part: some 0.2 ms.
  static constexpr int32_t kPartNodes = 16384;

  // `sequences` outlives this.
  explicit ViewTaker(const LiveSequences& sequences) : sequences_(sequences) {}

  // Reads the next part of a view, the first one of a new view after the last one of another. True
  // once all is read: `view` is complete but for its times, and as exact as KvMapBuilder says.
  bool Continue(SchedulerView& view);

 private:
  void AddSequences();

  const LiveSequences& sequences_;
  std::optional<KvMapBuilder> builder_;  // of the view under way
};

}  // namespace quire
