// StoredPages: the host memory for KV of a rank on another host than the leader, and which of its
// pages hold a block. The leader's tables say that a page keeps its bytes; the memory of a host
// whose process was started again has lost them. A load of such a page is refused instead of read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/worker/shm/copy_rings.h"
#include "engine/worker/shm/host_arena.h"

namespace quire {

class StoredPages {
 public:
  // Keeps the memory for one process of a leader: drops it when the instance is another.
  absl::Status Renew(const std::string& leader_instance);
  // Takes the pages. INVALID_ARGUMENT if an earlier call for this leader gave another shape.
  absl::Status Allocate(const HostArena::Shape& shape);
  const HostArena& arena() const { return *arena_; }

  // A job is about to begin: the pages of a store hold nothing until it is acked.
  void Begin(CopyDirection direction, const CopyJobMessage& job);
  // A store has ended.
  void End(const CopyJobMessage& job, const CopyAck& ack);
  // Whether every page of a load holds a block.
  bool Hold(const CopyJobMessage& job) const;

 private:
  std::string instance_;
  std::unique_ptr<HostArena> arena_;
  std::vector<bool> stored_;  // by page
};

}  // namespace quire
