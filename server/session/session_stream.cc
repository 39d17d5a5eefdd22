// Begin, end, and the accounting around them.
#include "server/session/session_stream.h"

#include <grpcpp/server_context.h>

#include "engine/base/clock.h"
#include "server/metrics/metrics.h"

namespace quire {

SessionStream::SessionStream(SessionResources* resources, const IncomingCall& call,
                             const char* method)
    : resources_(resources),
      caller_(call.caller),
      tenant_(call.caller->tenant),
      method_(method),
      opened_ns_(SteadyNowNs()),
      call_(&resources->calls.connections, call.context->peer()) {}

void SessionStream::Begin() {
  published_.store(this, std::memory_order_release);
  resources_->calls.metrics.SessionStreamOpened(method_);
  Post([this] { self_ = shared_from_this(); });
}

void SessionStream::Done() {
  published_.load(std::memory_order_acquire)
      ->resources_->calls.metrics.SessionStreamClosed(method_);
  Post([this] {
    ended_ = true;
    ReleaseAll();
    self_.reset();
  });
}

bool SessionStream::BeginEnd(const absl::Status& status) {
  if (std::exchange(ended_, true)) return false;
  ReleaseAll();
  resources_->calls.metrics.RpcFinished(method_, static_cast<int>(status.code()),
                                        static_cast<double>(SteadyNowNs() - opened_ns_) * 1e-9);
  return true;
}

void SessionStream::End(const absl::Status& status) {
  if (BeginEnd(status)) FinishWith(status);
}

}  // namespace quire
