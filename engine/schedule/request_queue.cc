// The order of admission.
#include "engine/schedule/request_queue.h"

#include <limits>

namespace quire {
namespace {

RequestQueue::Entry EntryOf(Sequence& sequence) {
  const int64_t start_ns = sequence.has_head_start ? RequestQueue::kHeadStartNs : 0;
  return {sequence.account, sequence.request->priority, sequence.request->arrival_ns - start_ns,
          sequence.order, &sequence};
}

}  // namespace

bool RequestQueue::Entry::operator<(const Entry& other) const {
  if (account != other.account) return account < other.account;
  if (priority != other.priority) return priority > other.priority;
  if (place_ns != other.place_ns) return place_ns < other.place_ns;
  return order < other.order;
}

RequestQueue::const_iterator RequestQueue::FirstOf(int32_t account) const {
  return entries_.LowerBound({account, std::numeric_limits<int32_t>::max(),
                              std::numeric_limits<int64_t>::min(), 0, nullptr});
}

void RequestQueue::Insert(Sequence& sequence) {
  entries_.Insert(EntryOf(sequence));
  num_tokens_ += sequence.known();
}

void RequestQueue::Erase(Sequence& sequence) {
  entries_.Erase(EntryOf(sequence));
  num_tokens_ -= sequence.known();
}

}  // namespace quire
