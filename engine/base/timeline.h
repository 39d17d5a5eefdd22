// Timeline: what the process did when, for a few seconds, on request. While it is off, a span costs
// one comparison. While it is on, events go into memory of a fixed size; when that is full, further
// ones are dropped and counted.
//
//   const TimelineSpan span({.track = Track::kScheduler, .name = "schedule"});
//
// Any thread, Start and Stop included.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"

namespace quire {

class Timeline {
 public:
  // A line of the picture. Spans of one track and lane follow one another or nest; those of
  // kRequests may overlap.
  enum class Track : uint8_t {
    kScheduler,   // turns of the scheduler's loop
    kText,        // lane: thread
    kOutput,      // lane: shard
    kStores,      // copies from device to host
    kLoads,       // copies from host to device
    kRequests,    // lane: unused; spans of one label belong together
    kRankHost,    // lane: rank; enqueues steps
    kRankDevice,  // lane: rank
  };
  struct Arg {
    const char* name = nullptr;  // a literal; null: no argument
    int64_t value = 0;
  };
  struct Event {
    Track track = Track::kScheduler;
    int32_t lane = 0;
    const char* name = "";  // a literal
    int64_t begin_ns = 0;   // steady clock
    int64_t end_ns = 0;
    std::array<Arg, 4> args{};
    std::string label;  // of kRequests: the request id
  };
  // Events in the order in which they were added, and how many found no room.
  struct Recording {
    std::vector<Event> events;
    uint64_t dropped = 0;
  };

  // False if the timeline is on already.
  static bool Start(size_t max_events);
  static Recording Stop();
  static bool on() { return on_.load(std::memory_order_relaxed); }
  // Does nothing while the timeline is off.
  static void Add(Event event);

 private:
  static std::atomic<bool> on_;
};

// A span from here to the end of this object's life.
class TimelineSpan {
 public:
  explicit TimelineSpan(Timeline::Event event) {
    if (!Timeline::on()) return;
    event_ = std::move(event);
    event_.begin_ns = SteadyNowNs();
  }
  ~TimelineSpan() {
    if (event_.begin_ns == 0) return;
    event_.end_ns = SteadyNowNs();
    Timeline::Add(std::move(event_));
  }
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;
  // Forgets the span: nothing worth showing happened.
  void Drop() { event_.begin_ns = 0; }

 private:
  Timeline::Event event_;
};

}  // namespace quire
