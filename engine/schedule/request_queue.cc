// The order of admission.
#include "engine/schedule/request_queue.h"

namespace quire {
namespace {

RequestQueue::Entry EntryOf(Sequence& sequence) {
  return {sequence.request->priority, sequence.request->arrival_ns, sequence.order, &sequence};
}

}  // namespace

bool RequestQueue::Entry::operator<(const Entry& other) const {
  if (priority != other.priority) return priority > other.priority;
  if (arrival_ns != other.arrival_ns) return arrival_ns < other.arrival_ns;
  return order < other.order;
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
