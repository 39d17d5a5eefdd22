// The owners of KV from the tree and the sequences, and the sequences by priority.
#include "engine/schedule/view_taker.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "engine/schedule/live_sequences.h"

namespace quire {
namespace {

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

// Sequences that end or are preempted keep their blocks until no step in flight knows them.
void ViewTaker::AddSequences() {
  const PrefixTree& tree = sequences_.kv().tree();
  for (const Sequence& sequence : sequences_.records()) {
    if (sequence.row == Sequence::kNoRow) continue;
    int32_t shared = 0;
    if (sequence.node != kNoNode) {
      builder_->AddChain(sequence.node, BlockOwner::kRunning);
      shared = tree.Depth(sequence.node);
    }
    const auto num_blocks = static_cast<int32_t>(sequence.blocks.size());
    for (int32_t i = shared; i < num_blocks; ++i) builder_->AddRunning(sequence.blocks[i]);
  }
  for (const Sequence* sequence : sequences_.restoring()) {
    if (sequence->node != kNoNode) builder_->AddChain(sequence->node, BlockOwner::kRestoring);
  }
}

bool ViewTaker::Continue(SchedulerView& view) {
  if (!builder_) builder_.emplace(sequences_.pool(), sequences_.kv().tree().nodes());
  if (!builder_->ReadNodes(kPartNodes)) return false;
  AddSequences();
  view.kv = builder_->Build();
  view.classes = Classes(sequences_);
  builder_.reset();
  return true;
}

}  // namespace quire
