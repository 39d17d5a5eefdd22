// Only a session's last event is joined with, so its events stay in their order.
#include "server/session/archive/change_queue.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {
namespace {

using Event = ChangeQueue::Event;
using Kind = Event::Kind;

int64_t BytesOf(const Event& event) {
  return static_cast<int64_t>(event.tokens.size() * sizeof(int32_t));
}

bool OfSession(const Event& event) {
  return event.kind != Kind::kTurnEnd && event.kind != Kind::kMark;
}

bool IsEnd(const Event& event) {
  return event.kind == Kind::kChange && event.info.state == SessionState::kClosed;
}

}  // namespace

void ChangeQueue::Push(Event event) {
  // The end of a session removes its files, and a hand-over waits for its mark.
  const bool needed = event.kind == Kind::kMark || IsEnd(event);
  const bool full = events_.size() >= kMaxEvents || bytes_ + BytesOf(event) > kMaxBytes;
  if (event.kind == Kind::kChange) {
    Event* const last = LastOf(event);
    if (last != nullptr && last->kind == Kind::kChange) {
      last->info = std::move(event.info);
      return;
    }
  }
  if (!full || needed) return Add(std::move(event));
  if (event.kind == Kind::kChange || event.kind == Kind::kTokens) GiveUp(std::move(event));
}

ChangeQueue::Event* ChangeQueue::LastOf(const Event& event) {
  const auto found = last_.find({event.info.tenant, event.info.name});
  if (found == last_.end()) return nullptr;
  Event& last = events_[found->second];
  return IsEnd(last) ? nullptr : &last;
}

void ChangeQueue::Add(Event event) {
  bytes_ += BytesOf(event);
  if (OfSession(event)) last_[{event.info.tenant, event.info.name}] = events_.size();
  events_.push_back(std::move(event));
}

void ChangeQueue::GiveUp(Event event) {
  event.kind = Kind::kTokens;
  event.incomplete = true;
  event.tokens = {};
  Event* const last = LastOf(event);
  if (last == nullptr) return Add(std::move(event));
  bytes_ -= BytesOf(*last);
  event.kept = std::min(event.kept, last->kept);
  *last = std::move(event);
}

void ChangeQueue::Take(std::vector<Event>* batch) {
  CHECK(batch->empty());
  batch->swap(events_);
  last_.clear();
  bytes_ = 0;
}

}  // namespace quire
