// CacheFlushCall: a call that drops KV of the prefix cache, for any protocol. A protocol is two
// functions: one that reads the request, one that makes the answer's message.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/values/kv_events.h"
#include "server/call/raw_service.h"

namespace quire {

struct SessionResources;

struct CacheFlushRequest {
  CacheFlush flush;
  double seconds = 0;  // flushes again and again for this time, while blocks or pages stay
};

// Both functions are called by any thread, and by several at once.
struct CacheFlushProtocol {
  const char* method;  // in metrics; a literal
  // A status is the call's end, as it is.
  std::function<absl::StatusOr<CacheFlushRequest>(const Caller&, const grpc::ByteBuffer&)> read;
  // The bytes of the answer. `flushed`: all that became free during the call, and what stays at its
  // end.
  std::function<std::string(const FlushedCache& flushed)> write;
};

// A handler for RawService; the reactors delete themselves. `resources` outlive the calls. Each
// flush is logged with its caller. A call that the engine's end overtakes ends with UNAVAILABLE
// (DRAINING).
RawService::Unary CacheFlushCall(SessionResources* resources, CacheFlushProtocol protocol);

}  // namespace quire
