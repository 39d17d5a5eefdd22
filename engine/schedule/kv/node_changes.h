// NodeChanges: tells a watcher of the prefix tree which nodes may have gained or lost KV. One
// thread. Costs one comparison while there is no watcher.
#pragma once

#include "engine/schedule/kv/node_record.h"

namespace quire {

// The tree calls it in the middle of a change, so it may call only the tree's const methods.
class NodeWatcher {
 public:
  virtual ~NodeWatcher() = default;
  // A tier of the node has changed, or a copy of it has ended. Comes at least once for each change,
  // in any state between.
  virtual void OnKvChange(NodeId node) = 0;
  // The node, which may be a root, is about to be removed; its id will be used again.
  virtual void OnForget(NodeId node) = 0;
};

class NodeChanges {
 public:
  // Outlives the last change; null: nothing is reported.
  void SetWatcher(NodeWatcher* watcher) { watcher_ = watcher; }

  void ReportKv(NodeId node) const {
    if (watcher_ != nullptr) watcher_->OnKvChange(node);
  }
  void ReportForget(NodeId node) const {
    if (watcher_ != nullptr) watcher_->OnForget(node);
  }

 private:
  NodeWatcher* watcher_ = nullptr;
};

}  // namespace quire
