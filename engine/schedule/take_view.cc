// The owners of KV from the tree and the sequences, and the sequences by priority.
#include "engine/schedule/take_view.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "engine/schedule/kv/kv_map_builder.h"
#include "engine/schedule/live_sequences.h"

namespace quire {
namespace {

KvMap MapKv(const LiveSequences& sequences) {
  const PrefixTree& tree = sequences.kv().tree();
  KvMapBuilder builder(sequences.pool(), tree.nodes());
  // Those that end or are preempted keep their blocks until no step in flight knows them.
  for (const Sequence& sequence : sequences.records()) {
    if (sequence.row == Sequence::kNoRow) continue;
    int32_t shared = 0;
    if (sequence.node != kNoNode) {
      builder.AddChain(sequence.node, BlockOwner::kRunning);
      shared = tree.Depth(sequence.node);
    }
    const auto num_blocks = static_cast<int32_t>(sequence.blocks.size());
    for (int32_t i = shared; i < num_blocks; ++i) builder.AddRunning(sequence.blocks[i]);
  }
  for (const Sequence* sequence : sequences.restoring()) {
    if (sequence->node == kNoNode) continue;
    builder.AddChain(sequence->node, BlockOwner::kRestoring);
  }
  return builder.Build();
}

std::vector<PriorityClass> Classes(const LiveSequences& sequences) {
  std::map<int32_t, PriorityClass, std::greater<>> by_priority;
  for (const Sequence* sequence : sequences.running()) {
    ++by_priority[sequence->request->priority].running;
  }
  for (const Sequence* sequence : sequences.restoring()) {
    ++by_priority[sequence->request->priority].restoring;
  }
  for (const RequestQueue::Entry& entry : sequences.queue()) ++by_priority[entry.priority].waiting;

  std::vector<PriorityClass> classes;
  classes.reserve(SchedulerView::kMaxClasses);
  for (const auto& [priority, counts] : by_priority) {
    if (classes.size() < SchedulerView::kMaxClasses) {
      classes.push_back(counts);
      classes.back().priority = priority;
      continue;
    }
    classes.back().running += counts.running;
    classes.back().restoring += counts.restoring;
    classes.back().waiting += counts.waiting;
  }
  return classes;
}

}  // namespace

SchedulerView TakeView(const LiveSequences& sequences) {
  return {.kv = MapKv(sequences), .classes = Classes(sequences)};
}

}  // namespace quire
