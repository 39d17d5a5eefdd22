// RequestQueue: the waiting sequences in the order of admission: priority, then arrival. A
// preempted sequence keeps its arrival, so it comes back before all sequences that arrived later.
// One thread. Allocates nothing within `capacity`.
#pragma once

#include <cstdint>

#include "engine/schedule/containers/recycling_set.h"
#include "engine/schedule/sequence.h"

namespace quire {

class RequestQueue {
 public:
  // The sort key is copied out of the sequence, so that walking the queue does not touch it.
  struct Entry {
    int32_t priority = 0;
    int64_t arrival_ns = 0;
    uint64_t order = 0;
    Sequence* sequence = nullptr;

    bool operator<(const Entry& other) const;
  };
  using const_iterator = RecyclingSet<Entry>::const_iterator;

  explicit RequestQueue(size_t capacity) { entries_.Reserve(capacity); }

  void Insert(Sequence& sequence);
  void Erase(Sequence& sequence);
  // A waiting sequence has one more known token (it was preempted with steps in flight).
  void AddToken() { ++num_tokens_; }

  const_iterator begin() const { return entries_.begin(); }
  const_iterator end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  int64_t num_tokens() const { return num_tokens_; }  // known tokens of all waiting sequences

 private:
  RecyclingSet<Entry> entries_;
  int64_t num_tokens_ = 0;
};

}  // namespace quire
