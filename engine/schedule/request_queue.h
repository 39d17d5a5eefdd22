// RequestQueue: the waiting sequences, each tenant's in the order of admission: priority, then
// arrival, from which some have a head start. FairWalk (fair_walk.h) decides between
// tenants. One thread. Allocates nothing within `capacity`.
//
// A sequence that has run, and a turn whose session has KV, come before others that arrived up to
// kHeadStartNs earlier: little is left to compute for them, and their users have waited before. A
// first prompt is overtaken for that long and no longer.
#pragma once

#include <cstdint>

#include "engine/schedule/containers/recycling_set.h"
#include "engine/schedule/sequence.h"

namespace quire {

class RequestQueue {
 public:
  static constexpr int64_t kHeadStartNs = 10'000'000'000;

  // The sort key is copied out of the sequence, so that walking the queue does not touch it.
  struct Entry {
    int32_t account = 0;  // the tenant's
    int32_t priority = 0;
    int64_t place_ns = 0;  // arrival, less the head start
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
  // The first of an account that has a sequence here; the account's others follow it.
  const_iterator FirstOf(int32_t account) const;
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  int64_t num_tokens() const { return num_tokens_; }  // known tokens of all waiting sequences

 private:
  RecyclingSet<Entry> entries_;
  int64_t num_tokens_ = 0;
};

}  // namespace quire
