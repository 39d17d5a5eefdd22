// SendQueue: decides which request is sent next, and when. A state machine without thread or clock;
// pacer.h gives it both.
//
// A request is due at a time. With a limit on concurrency it also needs a slot, which is free from
// some time on. It is eligible at the later of the two; the time from eligible to sent is the
// client's own lag.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

namespace quire::load {

class Stream;

struct DueSend {
  int64_t due_ns = 0;
  bool takes_slot = true;  // a conversation's later turns go on in the slot of the first
  std::shared_ptr<Stream> stream;
};

struct EligibleSend {
  DueSend send;
  int64_t eligible_ns = 0;
};

class SendQueue {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // Without slots: any number in flight.
  SendQueue() = default;
  // One slot for each element, free from that time on.
  explicit SendQueue(const std::vector<int64_t>& slots_free_ns);

  void Add(DueSend send);
  // The earliest request eligible by now_ns, in order of due times; its slot is taken.
  std::optional<EligibleSend> Take(int64_t now_ns);
  // The next time at which Take returns a request, as far as is known.
  int64_t NextNs() const;
  // A slot is free again from now_ns on. Ignored without a limit.
  void Release(int64_t now_ns);

  // Empties the queue.
  std::vector<DueSend> TakeAll();

 private:
  struct Entry {
    DueSend send;
    uint64_t order = 0;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.send.due_ns != b.send.due_ns ? a.send.due_ns > b.send.due_ns : a.order > b.order;
    }
  };
  using Entries = std::priority_queue<Entry, std::vector<Entry>, Later>;

  int64_t EligibleNs(const Entries& entries, bool takes_slot) const;

  bool limited_ = false;
  uint64_t next_order_ = 0;
  Entries slotted_, unslotted_;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> slots_free_ns_;
};

}  // namespace quire::load
