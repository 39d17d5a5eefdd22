// ChangeQueue: changes of sessions on their way to the thread that writes them, in their order. It
// stays small while the disk hangs: a session's changes of options or lease become one, and beyond
// a bound a session has one event, which says that its journal lacks something, so that the session
// is written whole once the disk works. The caller's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "engine/values/session.h"
#include "server/session/archive/deadline_thread.h"
#include "server/session/archive/journals.h"

namespace quire {

class ChangeQueue {
 public:
  // Of tokens that wait.
  static constexpr int64_t kMaxBytes = int64_t{256} << 20;
  // Of about 400 bytes each: 26 MB. Ends of sessions and one event for each session come on top.
  static constexpr size_t kMaxEvents = size_t{1} << 16;

  struct Event {
    enum class Kind : uint8_t { kChange, kTokens, kWhole, kTurnEnd, kMark } kind = Kind::kChange;
    SessionInfo info;  // of kTurnEnd the name alone
    // kTokens: the session has the first `kept` tokens as before.
    int32_t kept = std::numeric_limits<int32_t>::max();
    bool incomplete = false;        // kTokens: those behind are not here
    std::vector<int32_t> tokens;    // kTokens: those added; kWhole: all
    std::shared_ptr<OnceCall> end;  // kTurnEnd, kMark: to be run when all before is written
  };

  // A whole session and the end of a turn that find no room are dropped: the one is asked for
  // again, the other has a deadline of its own.
  void Push(Event event);
  // Swaps the events into `batch`, which is empty.
  void Take(std::vector<Event>* batch);
  bool empty() const { return events_.empty(); }
  size_t size() const { return events_.size(); }

 private:
  // The session's last event that a later one may be joined with; null: there is none.
  Event* LastOf(const Event& event);
  void Add(Event event);
  void GiveUp(Event event);

  std::vector<Event> events_;
  std::map<SessionKey, size_t> last_;  // the session's last event, ends of turns aside
  int64_t bytes_ = 0;                  // of tokens
};

}  // namespace quire
