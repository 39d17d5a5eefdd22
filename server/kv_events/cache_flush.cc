// The answer travels in an object that answers by itself when it is dropped.
#include "server/kv_events/cache_flush.h"

#include <memory>
#include <utility>

#include "server/call/serial_thread.h"
#include "server/call/status_codec.h"
#include "server/session/session_resources.h"

namespace quire {
namespace {

using Done = std::function<void(const absl::StatusOr<FlushedCache>&)>;

class PendingFlush {
 public:
  explicit PendingFlush(Done done) : done_(std::move(done)) {}
  ~PendingFlush() {
    Answer(Refusal(absl::StatusCode::kUnavailable, "DRAINING",
                   "the server is going away; retry elsewhere", 1));
  }
  PendingFlush(const PendingFlush&) = delete;
  PendingFlush& operator=(const PendingFlush&) = delete;

  void Answer(const absl::StatusOr<FlushedCache>& answer) {
    if (const Done done = std::exchange(done_, nullptr)) done(answer);
  }

 private:
  Done done_;
};

}  // namespace

void FlushCache(SessionResources& resources, const CacheFlush& flush, Done done) {
  const auto pending = std::make_shared<PendingFlush>(std::move(done));
  resources.engine.FlushCache(flush,
                              [pending, &thread = resources.thread](const FlushedCache& flushed) {
                                thread.Post([pending, flushed] { pending->Answer(flushed); });
                              });
}

}  // namespace quire
